"""Where servers go, and a publish by two processes, without any server."""

import socket
import subprocess
import sys
import textwrap

import pytest

from rl import sidecar
from tests.rollout.policies import ROOT


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


def test_one_gpu_for_both_needs_both_fractions(monkeypatch):
    _machine(monkeypatch, [0], (0,))
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    with pytest.raises(ValueError, match="XLA_PYTHON_CLIENT_MEM_FRACTION"):
        sidecar.device_sets("0", 0.4)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
    assert sidecar.device_sets("0", 0.4) == [(0,)]


def test_the_probe_prompt_fills_blocks_and_leaves_room():
    assert len(sidecar.probe_prompt([1, 2, 3], 4096)) == 300
    assert sidecar.probe_prompt([1, 2, 3], 24) == [1, 2, 3, 1, 2, 3, 1, 2]


PROCESS = """
    import hashlib, sys, time
    import jax
    from rl.devices import join_cpu_devices, start_cpu_devices
    index, count, port, wait = map(int, sys.argv[1:5])
    jax.config.update("jax_platforms", "cpu")
    start_cpu_devices(4 // count, rows=4)
    if count > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", count, index)
    import numpy as np
    from models import hf
    from models.config import Qwen2Config
    from models.qwen2 import Qwen2, init_params
    from rl.sidecar import Follower, make_probe
    from sharding.mesh import make_mesh

    config = Qwen2Config(
        vocab_size=96, hidden_size=64, intermediate_size=64, num_layers=2, num_heads=2,
        num_kv_heads=1, head_dim=32, rope_theta=1e4, rms_norm_eps=1e-6,
        tie_word_embeddings=True, max_positions=64)
    mesh = make_mesh(fsdp=4)
    if index:
        time.sleep(wait)
    join_cpu_devices(mesh)
    model = Qwen2(config, mesh=mesh)
    params = init_params(model, mesh, seed=0)

    def export(params):
        return hf.export_tensors(params, config, np.dtype(np.float32))

    probe = make_probe(model, max_model_len=48, head_chunk=64, servers=2)
    if index:
        Follower(export, probe).publish(params, 1)
    else:
        digest = hashlib.sha256()
        for name, array in export(params):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        scored = probe(params, [list(range(40)), [5, 6, 7]])
        print("result", digest.hexdigest(), *np.round(scored[0][1:4], 4),
              *np.round(scored[1][1:], 4))
"""


def _publish(count, wait=0):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROCESS)]
            + [str(index), str(count), str(port), str(wait)],
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
    return next(x for x in outputs[0][0].splitlines() if x.startswith("result"))


def test_two_processes_publish_and_score_what_one_does():
    assert _publish(2) == _publish(1)


@pytest.mark.slow
def test_a_process_that_comes_late_is_waited_for():
    # Gloo alone gives up after 30 seconds, in one process, and hangs in the other.
    assert _publish(2, wait=45) == _publish(1)
