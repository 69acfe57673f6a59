"""Where servers go, and a publish by two processes, without any server."""

import socket
import subprocess
import sys
import types

import jax
import pytest

from rl.hosts import sidecar
from rollout.vllm.server import ServerFailed
from tests.rl.hosts.publishing import publish
from tests.rollout.vllm.policies import ROOT
from tests.tools.tiny import make_model


def _machine(monkeypatch, gpus, own):
    monkeypatch.setattr(sidecar, "_gpus_of_machine", lambda: gpus)
    monkeypatch.setattr(sidecar, "_gpus_of_jax", lambda: own)


def test_servers_take_the_gpus_that_jax_leaves(monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    _machine(monkeypatch, [0, 1, 2, 3], (0, 1))
    assert sidecar.device_sets("", 0.0) == [(2,), (3,)]
    assert sidecar.device_sets("2,3", 0.0) == [(2, 3)]
    with pytest.raises(ValueError, match=r"GPUs \[1\] are used by both JAX and vLLM"):
        sidecar.device_sets("1;2", 0.0)
    with pytest.raises(ValueError, match="devices='gpu0'"):
        sidecar.device_sets("gpu0", 0.0)
    _machine(monkeypatch, [0, 1], (0, 1))
    with pytest.raises(ValueError, match=r"JAX holds every GPU of this machine \(\[0"):
        sidecar.device_sets("", 0.0)
    _machine(monkeypatch, [], ())
    assert sidecar.device_sets("", 0.0) == [()]


def test_gpus_named_in_another_way_than_by_number_are_refused(monkeypatch):
    monkeypatch.setattr(
        jax,
        "local_devices",
        lambda: [types.SimpleNamespace(platform="gpu", local_hardware_id=0)],
    )
    # Taken for number 0, a server would be started on this process's own.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-4aa0-11,GPU-5bb0-22")
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES=GPU-4aa0.*: give num"):
        sidecar.device_sets("", 0.0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert sidecar._gpus_of_jax() == (4,)


def test_one_gpu_for_both_needs_both_fractions(monkeypatch):
    _machine(monkeypatch, [0], (0,))
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    with pytest.raises(ValueError, match="XLA_PYTHON_CLIENT_MEM_FRACTION"):
        sidecar.device_sets("0", 0.4)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
    assert sidecar.device_sets("0", 0.4) == [(0,)]


@pytest.mark.failure(53)
def test_each_server_has_a_log_of_its_own(tmp_path):
    program = tmp_path / "vllm"
    program.write_text(
        '#!/bin/sh\ncase "$CUDA_VISIBLE_DEVICES" in\n'
        '  0) echo "RuntimeError: out of memory" ;;\n'
        '  1) echo "ValueError: no such accelerator" ;;\nesac\nexit 3\n'
    )
    program.chmod(0o755)
    servers = sidecar.make_servers(
        [(0,), (1,)],
        python=str(program),
        key="--vllm_python",
        folder=make_model(tmp_path / "model"),
        logs=tmp_path,
        max_model_len=64,
    )
    for server in servers:
        server.start()
        with pytest.raises(ServerFailed, match="exited with 3"):
            server.wait_ready(20)
    # In one log, the second one's words would be the last of both.
    first, second = (server.last_error() for server in servers)
    assert first == f"RuntimeError: out of memory ({tmp_path}/vllm-0.log)"
    assert second == f"ValueError: no such accelerator ({tmp_path}/vllm-1.log)"


def test_what_cannot_be_started_is_refused(tmp_path):
    folder = make_model(tmp_path / "model")
    kinds = dict(folder=folder, logs=tmp_path, max_model_len=64)
    with pytest.raises(ValueError, match="--vllm_python='none': no such file"):
        sidecar.make_servers([(0,)], python="none", key="--vllm_python", **kinds)


def test_the_probe_prompt_fills_blocks_and_leaves_room():
    assert len(sidecar.probe_prompt([1, 2, 3], 4096)) == 300
    assert sidecar.probe_prompt([1, 2, 3], 24) == [1, 2, 3, 1, 2, 3, 1, 2]


def _published(count, late=0):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    module = [sys.executable, "-m", "tests.rl.hosts.publishing"]
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
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors[-3000:]
    told = [x for x in outputs[0][0].splitlines() if x.startswith("result ")]
    return told[0].removeprefix("result ")


def test_two_processes_publish_and_score_what_one_does():
    assert _published(2) == publish()


@pytest.mark.slow
def test_a_process_that_comes_late_is_waited_for():
    # Gloo alone gives up after 30 seconds, in one process, and hangs in the other.
    assert _published(2, late=45) == publish()
