"""The probe, and a publish by two processes, without servers."""

import pytest

from rl.sampler_servers import probe_prompt
from rollout.vllm.server import free_port
from tests.other_processes import started
from tests.rl.processes.publishing import publish


def test_the_probe_prompt_fills_blocks_and_leaves_room():
    assert len(probe_prompt([1, 2, 3], 4096)) == 300
    assert probe_prompt([1, 2, 3], 24) == [1, 2, 3, 1, 2, 3, 1, 2]


def _published(count, late=0):
    module, port = ("-m", "tests.rl.processes.publishing"), free_port()
    commands = [[*module, index, count, port, late] for index in range(count)]
    env = {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    with started(commands, env=env) as processes:
        outputs = [process.communicate(timeout=300) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors[-3000:]
    told = [x for x in outputs[0][0].splitlines() if x.startswith("result ")]
    return told[0].removeprefix("result ")


@pytest.mark.slow
@pytest.mark.ci
def test_two_processes_publish_and_score_what_one_does():
    assert _published(2) == publish()


@pytest.mark.slow
def test_a_process_that_comes_late_is_waited_for():
    # Gloo alone gives up after 30 seconds, in one process, and hangs in the other.
    assert _published(2, late=45) == publish()
