"""Makes eight virtual CPU devices, as a small pod; the shared data is optional."""

import contextlib
import os
import pathlib
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
_flags = os.environ.get("XLA_FLAGS", "")
if "xla_force_host_platform_device_count" not in _flags:
    os.environ["XLA_FLAGS"] = f"{_flags} --xla_force_host_platform_device_count=8"
# XLA's thread pool: devices that wait for each other must leave threads to those that
# still compute (see rl.processes.devices).
os.environ.setdefault("NPROC", "16")
# Of torch, in servers too: two files at a time share two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

with contextlib.suppress(ImportError):  # tests that need torch import it themselves
    import torch  # noqa: F401  (before transformers looks for it, see rl.problems.tokenizer)

# Most of the suite's time is compilation, and many tests compile the same programs.
jax.config.update("jax_compilation_cache_dir", "/tmp/compass-thinker-jax-cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

# So do the commands that tests start. Theirs are kept for one session alone: some are
# killed, perhaps while they write a program.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _programs = tempfile.TemporaryDirectory(prefix="compass-thinker-programs-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _programs.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# The same examples in each run.
hypothesis.settings.register_profile("suite", derandomize=True)
hypothesis.settings.load_profile("suite")

_ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def quick_compilation():
    """Leaves out LLVM's slow passes, for programs that are called once or twice."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real data sets; tests that need it skip where it is absent."""
    folder = pathlib.Path(
        os.environ.get("SHARED_DATA", _ROOT.parent / "shared" / "data")
    )
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder} (set SHARED_DATA)")
    return folder
