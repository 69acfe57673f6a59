"""What is switched to is, bit for bit, what vLLM loads by itself."""

import os
import pathlib
import subprocess

import pytest

from tests.rollout.vllm import policies

SCRIPT = pathlib.Path(__file__).with_name("twin_check.py")


@pytest.mark.vllm
def test_three_switches_end_where_a_full_load_does(tmp_path):
    policies.needs_vllm()
    folder = policies.make_folder(tmp_path / "model", tied=True, dtype="bfloat16")
    found = subprocess.run(
        [policies.PYTHON, SCRIPT, folder, "bfloat16", "3"],
        capture_output=True,
        text=True,
        env={
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "PYTHONPATH": str(policies.ROOT),
            "CUDA_VISIBLE_DEVICES": "",
            "VLLM_CPU_KVCACHE_SPACE": "1",
        },
    )
    assert found.returncode == 0, found.stderr[-2000:]
    # Each of four layers: qkv with its bias, o, gate_up, down, two norms; then the
    # embedding, the head and the last norm.
    assert f"compared {4 * (4 * 2 + 1 + 2) + 2 * 2 + 1}" in found.stdout
