"""Real processes, connected as a run's are, without a run."""

import signal
import socket
import time

import pytest

from rl.processes import start
from rl.processes.group import SingleProcess
from rollout.vllm.server import free_port
from tests.other_processes import started

SCRIPT = """
    import os, signal, sys, threading, time
    import jax
    import numpy as np
    from jax._src.distributed import global_state
    from rl.processes import group, start

    jax.config.update("jax_platforms", "cpu")
    group.HEARTBEAT_SECONDS = 5
    how, port, count, index = sys.argv[1], *map(int, sys.argv[2:])
    if how == "another count" and index == 1:
        count += 1
    joined = start.start(f"127.0.0.1:{port}", count, index, expected_errors=(OSError,))
    print("joined", flush=True)
    with joined as processes:
        if how == "fails" and index == 1:
            raise OSError("no space left")
        if how == "breaks" and index == 0:
            raise KeyError("broken")
        if how == "killed" and index == 1 or how == "leader killed" and index == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stands still" and index == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "signals":
            if index == 0:
                processes.watch_signals(lambda n: processes.abandon(128 + n))
            if index == 1:
                processes.signal(15)
        if how != "works":
            global_state.client.blocking_key_value_get("never", 600_000)
        large = np.arange(3_000_001, dtype=np.uint8)
        if index == 0:
            for number in range(20):
                processes.announce("small", number)
            processes.announce("large", large)
            errors = []

            def elsewhere():
                try:
                    processes.announce("mixed")
                except RuntimeError as error:
                    errors.append(error)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            assert "must be sent from the main thread" in str(errors[0])
        else:
            small = [processes.receive() for _ in range(20)]
            assert small == [("small", (number,), {}) for number in range(20)]
            name, (array,), _ = processes.receive()
            assert name == "large" and (array == large).all()
        global_state.client.wait_at_barrier("read", 60_000)
        if index:
            status = processes.receive()[1][0]
        else:
            status = 7
            assert global_state.client.key_value_dir_get_bytes("rl/call") == []
        processes.end(status)
    sys.exit(status)
"""


def run(how, count):
    """Starts the script's processes; their exit statuses and their errors."""
    port = free_port()
    began = time.monotonic()
    with started(("-c", SCRIPT, how, port, count, i) for i in range(count)) as ended:
        for index, process in enumerate(ended):
            if how != "stands still" or index != 1:
                process.wait(120)
        print(f"{how}: {time.monotonic() - began:.1f} s")
    errors = [process.communicate()[1] for process in ended]
    return [process.returncode for process in ended], errors


def _refusal(*flags):
    """The message that a start with these flags ends with."""
    with pytest.raises(ValueError) as caught:
        start.start(*flags, expected_errors=())
    return str(caught.value)


def _lines(error):
    return [line for line in error.splitlines() if line.startswith("error: ")]


@pytest.mark.failure(101)
def test_commands_reach_all_past_a_proxy_and_leave_nothing_in_the_store(monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    statuses, errors = run("works", 3)
    assert statuses == [7, 7, 7], errors
    assert not any(map(_lines, errors)) and not any("proxy" in e for e in errors)


@pytest.mark.failure(54)
def test_a_failing_process_ends_all_with_its_message():
    statuses, errors = run("fails", 3)
    assert statuses == [1, 1, 1], errors
    named = "error: process 1: no space left"
    assert list(map(_lines, errors)) == [[named], ["error: no space left"], [named]]
    statuses, errors = run("breaks", 2)
    assert statuses == [1, 1], errors
    assert "Traceback" in errors[0] and _lines(errors[0]) == ["error: 'broken'"]
    assert _lines(errors[1]) == ["error: process 0: 'broken'"]


@pytest.mark.failure(54)
@pytest.mark.parametrize("how", ["killed", "stands still"])
def test_a_lost_process_ends_the_others_with_a_line_that_names_it(how):
    count = 3 if how == "killed" else 2
    statuses, errors = run(how, count)
    assert statuses == [1, -signal.SIGKILL, 1][:count], errors
    assert {line for error in errors for line in _lines(error)} == {
        "error: process 1 died or hangs; see its output, then start all processes again"
    }


@pytest.mark.failure(54)
def test_a_lost_leader_ends_the_others():
    statuses, errors = run("leader killed", 2)
    # JAX aborts the process; a line of its own says that another task has died.
    assert statuses[0] == -signal.SIGKILL and statuses[1] != 0, errors
    assert "process 0 died" in errors[1] or "another task died" in errors[1]


def test_a_signal_to_any_process_reaches_the_leader_and_its_status_all():
    statuses, errors = run("signals", 2)
    assert statuses == [143, 143], errors
    assert not any(map(_lines, errors))


@pytest.mark.parametrize(
    "flags,message",
    [
        ((None, 2, None), "--num_processes=2: --coordinator, --num_processes and"),
        (("h:1", 2, 2), "--process_id=2: must lie in [0, 1]"),
        (("h:1", 2, -1), "--process_id=-1: must lie in [0, 1]"),
        (("h:1", 0, 0), "--num_processes=0: must be at least 1"),
        (("h", 2, 0), "--coordinator='h': must be HOST:PORT, such as 10.0.0.1:8476"),
        (("h:70000", 2, 0), "--coordinator='h:70000': must be HOST:PORT"),
        (("h:²", 2, 1), "--coordinator='h:²': must be HOST:PORT"),
        ((None, 1, 3), "--num_processes=1 --process_id=3: --coordinator, "),
    ],
)
def test_flags_that_do_not_fit_are_one_line(flags, message):
    found = _refusal(*flags)
    assert found.startswith(message) and "\n" not in found


@pytest.mark.failure(174)
def test_another_number_of_processes_than_connected_is_one_line(monkeypatch):
    monkeypatch.setattr(start, "_initialize", lambda *_: True)
    assert "--num_processes=3: the run has 1 process" in _refusal("h:1", 3, 1)


@pytest.mark.failure(198)
def test_a_refused_number_of_processes_ends_all_at_once():
    began = time.monotonic()
    _, errors = run("another count", 2)
    assert time.monotonic() - began < 50
    assert "error: process 1: --num_processes=3: the run has 2 process(es)" in errors[0]


@pytest.mark.failure(100)
def test_a_port_that_another_process_uses_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        found = _refusal(address, 2, 0)
    message = f"--coordinator={address!r}: process 0 cannot listen on port"
    assert found.startswith(message)


@pytest.mark.failure(199)
def test_the_address_that_slurm_gives_is_checked(monkeypatch):
    tasks = dict(STEP_NUM_TASKS=2, NTASKS=2, PROCID=0, LOCALID=0)
    slurm = dict(JOB_ID=7, STEP_NODELIST="n[3-4]") | tasks
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("JAX_COORDINATOR_PORT", str(port))
        found = _refusal(None, None, None)
    line = f"coordinator_address='n3:{port}': process 0 cannot listen on port {port}"
    assert line in found and "JAX_COORDINATOR_PORT" in found


def test_a_port_that_is_used_on_a_tpu_pod_does_not_start_a_single_process(monkeypatch):
    def refuse(**_):
        raise ValueError("coordinator_address='n3:8476': process 0 cannot listen")

    monkeypatch.setattr(start.jax.distributed, "initialize", refuse)
    with pytest.raises(ValueError, match="libtpu: .* process 0 cannot listen"):
        start._initialize(start._TPU, {"process_id": 0})


@pytest.mark.failure(208)
@pytest.mark.parametrize(
    "per_task,visible,found",
    [("2", "0,1", [0, 1]), ("a100:1", "3", [0])]
    + [("1", "0,1,2", None), ("", "0", None), ("1", "", None)],
)
def test_with_gpus_per_task_each_task_uses_its_own(
    monkeypatch, per_task, visible, found
):
    monkeypatch.setenv("SLURM_GPUS_PER_TASK", per_task)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert start._find_arguments().get("local_device_ids") == found


@pytest.mark.failure(199)
def test_an_address_that_cannot_be_reached_is_named(monkeypatch):
    lines = []
    monkeypatch.setattr(start.group, "end_process", lambda _, line: lines.append(line))
    address = f"127.0.0.1:{free_port()}"
    for found in (address, None):
        monkeypatch.setattr(start.global_state, "coordinator_address", found)
        start._end_late("SLURM_STEP_NUM_TASKS=2")
    assert f"process 0 at {address} cannot be reached ([Errno 111]" in lines[0]
    assert "process 0 at an unknown address cannot be reached" in lines[1]


def test_an_environment_that_names_processes_and_no_more_is_an_error(monkeypatch):
    nothing = (None, None, None)
    assert isinstance(start.start(*nothing, expected_errors=()), SingleProcess)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    with pytest.raises(ValueError, match="JOB_COMPLETION_INDEX=0: .* connected"):
        start.start(*nothing, expected_errors=())
    assert isinstance(start.start(None, 1, None, expected_errors=()), SingleProcess)
