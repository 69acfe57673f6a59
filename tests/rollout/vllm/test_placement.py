"""Placement of servers on GPUs, and their logs, without vLLM."""

import dataclasses
import types

import jax
import pytest

from rollout.vllm import placement
from rollout.vllm.placement import device_sets, make_servers
from rollout.vllm.server import ServerFailed, ServerSpec
from tests.other_processes import make_program
from tests.tools.tiny import make_model


@pytest.mark.parametrize(
    ("machine", "own", "devices", "fractions", "found"),
    [
        ([0, 1, 2, 3], (0, 1), "", (0.0, ""), [(2,), (3,)]),
        ([0, 1, 2, 3], (0, 1), "2,3", (0.0, ""), [(2, 3)]),
        ([0, 1, 2, 3], (0, 1), "1;2", (0.0, ""), r"both JAX and vLLM use GPUs \[1\]"),
        ([0, 1, 2, 3], (0, 1), "2,3;3", (0.0, ""),
         r"lists the GPU ids \[3\] more than"),
        ([0, 1, 2, 3], (0, 1), "3,3", (0.0, ""), r"lists the GPU ids \[3\] more than"),
        ([0, 1, 2, 3], (0, 1), "gpu0", (0.0, ""), "devices='gpu0': must be GPU ids"),
        ([0, 1], (0, 1), "", (0.0, ""), r"JAX uses all GPUs of this machine \(\[0"),
        ([0], (0,), "0", (0.4, ""), "set both .* XLA_PYTHON_CLIENT_MEM_FRACTION"),
        ([0], (0,), "0", (0.7, "0.4"), r"zation \(now 0\.7\) .* \(now 0\.4\)"),
        ([0], (0,), "0", (0.5, "0.4"), [(0,)]),
        ([], (), "", (0.0, ""), [()]),
    ],
)  # fmt: skip
def test_servers_get_gpus_that_jax_does_not_hold_or_a_share(
    monkeypatch, machine, own, devices, fractions, found
):
    of_vllm, of_jax = fractions
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", of_jax)
    monkeypatch.setattr(placement, "_gpus_of_machine", lambda: machine)
    monkeypatch.setattr(placement, "_gpus_of_jax", lambda: own)
    if isinstance(found, list):
        assert device_sets(devices, of_vllm) == found
    else:
        with pytest.raises(ValueError, match=found):
            device_sets(devices, of_vllm)


@pytest.mark.failure(150)
def test_gpus_that_are_not_visible_get_no_server_if_jax_uses_none(monkeypatch):
    monkeypatch.setattr(placement, "_gpus_of_machine", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(placement, "_gpus_of_jax", lambda: ())
    for visible, found in (("3,1", [(1,), (3,)]), ("", [(0,), (1,), (2,), (3,)])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert device_sets("", 0.0) == found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-4aa0-11")
    assert device_sets("0;2", 0.0) == [(0,), (2,)]


def test_gpus_that_are_not_named_by_number_are_rejected(monkeypatch):
    device = types.SimpleNamespace(platform="gpu", local_hardware_id=0)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    # Read as number 0, a server would be started on this process's own.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-4aa0-11,GPU-5bb0-22")
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES=GPU-4aa0.*: must con"):
        device_sets("", 0.0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    assert placement._gpus_of_jax() == (4,)


@pytest.mark.failure(206)
def test_no_gpu_is_found_where_nvidia_smi_says_so(tmp_path, monkeypatch):
    make_program(tmp_path / "nvidia-smi", "echo No devices were found")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert placement._gpus_of_machine() == []


@pytest.mark.failure(53)
@pytest.mark.failure(207)
def test_each_server_has_its_own_log(tmp_path):
    program = make_program(
        tmp_path / "vllm",
        'case "$CUDA_VISIBLE_DEVICES" in\n'
        '  0) echo "RuntimeError: out of memory" ;;\n'
        '  1) echo "ValueError: no such accelerator"\n'
        '     echo "RuntimeError: initialization failed. See root cause above." ;;\n'
        "esac\nexit 3",
    )
    folder = make_model(tmp_path / "model")
    spec = ServerSpec(python=str(program), model=str(folder), max_model_len=64)
    how = dict(key="--vllm_python", logs=tmp_path)
    servers = make_servers(spec, [(0,), (1,)], **how)
    for server in servers:
        server.start()
        with pytest.raises(ServerFailed, match="exited with status 3"):
            server.wait_ready(20)
    # In one log, the second one's error would be the last of both.
    first, second = (server.last_error() for server in servers)
    assert first == f"RuntimeError: out of memory ({tmp_path}/vllm-0.log)"
    assert second == f"ValueError: no such accelerator ({tmp_path}/vllm-1.log)"
    with pytest.raises(ValueError, match="--vllm_python='none': no such file"):
        make_servers(dataclasses.replace(spec, python="none"), [(0,)], **how)
