import os

import jax

from rl.processes.devices import make_deterministic, take_gpu_memory

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


def test_a_deterministic_run_says_so_to_xla_and_keeps_its_choices(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=here")
    before = jax.config.jax_persistent_cache_enable_xla_caches
    try:
        make_deterministic(tmp_path)
        make_deterministic(tmp_path / "other")  # what is set stays
        assert jax.config.jax_persistent_cache_enable_xla_caches == "none"
    finally:
        jax.config.update("jax_persistent_cache_enable_xla_caches", before)
    assert os.environ["XLA_FLAGS"].split() == [
        "--xla_dump_to=here",
        "--xla_gpu_deterministic_ops=true",
        f"--xla_gpu_per_fusion_autotune_cache_dir={tmp_path}/autotune",
    ]
