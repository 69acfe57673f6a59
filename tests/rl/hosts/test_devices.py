import os

from rl.hosts.devices import take_gpu_memory

SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def test_a_run_has_of_a_gpu_what_plans_count_on_unless_it_is_told_otherwise(
    monkeypatch,
):
    """With JAX's own three quarters three of the configs would not fit an H100."""
    monkeypatch.setenv(SHARE, "0.4")
    take_gpu_memory()
    assert os.environ[SHARE] == "0.4"
    monkeypatch.delenv(SHARE)
    take_gpu_memory()
    assert os.environ[SHARE] == "0.92"
