"""The probe, and a publish by two processes, without servers."""

import subprocess
import sys

import pytest

from rl.sampler_servers import probe_prompt
from rollout.vllm.server import free_port
from tests.rl.processes.publishing import publish
from tests.rollout.vllm.policies import ROOT


def test_the_probe_prompt_fills_blocks_and_leaves_room():
    assert len(probe_prompt([1, 2, 3], 4096)) == 300
    assert probe_prompt([1, 2, 3], 24) == [1, 2, 3, 1, 2, 3, 1, 2]


def _published(count, late=0):
    port = free_port()
    module = [sys.executable, "-m", "tests.rl.processes.publishing"]
    processes = [
        subprocess.Popen(
            [*module, str(index), str(count), str(port), str(late)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        )
        for index in range(count)
    ]
    try:
        outputs = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
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
