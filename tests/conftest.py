"""Eight virtual CPU devices stand in for a pod; the shared data is optional."""

import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
_flags = os.environ.get("XLA_FLAGS", "")
if "xla_force_host_platform_device_count" not in _flags:
    os.environ["XLA_FLAGS"] = f"{_flags} --xla_force_host_platform_device_count=8"
# XLA's thread pool: devices that wait for each other must leave threads to those that
# still compute (see rl.devices).
os.environ.setdefault("NPROC", "16")

import jax  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402, F401  (before transformers looks for it, see rl.tokenizer)

# Most of the suite's time is compilation, and many tests compile the same programs.
jax.config.update("jax_compilation_cache_dir", "/tmp/compass-thinker-jax-cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

_ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real data sets; tests that need it skip where it is absent."""
    folder = pathlib.Path(
        os.environ.get("SHARED_DATA", _ROOT.parent / "shared" / "data")
    )
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder} (set SHARED_DATA)")
    return folder
