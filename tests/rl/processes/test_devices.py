import errno
import os
import tempfile
import warnings

import jax
import pytest

from configs import quickstart
from configs.base import from_config
from rl.processes import devices
from rl.processes.devices import keep_programs, start_devices, take_gpu_memory
from tests.other_processes import python

SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"


@pytest.fixture
def config(monkeypatch):
    """Puts JAX's config back, and names no cache in the environment."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_enable_xla_caches",
             "jax_enable_x64", "jax_disable_jit", "jax_numpy_rank_promotion",
             "jax_numpy_dtype_promotion")  # fmt: skip
    before = {name: getattr(jax.config, name) for name in names}
    yield jax.config
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_run_has_of_a_gpu_what_plans_count_on(monkeypatch):
    """With JAX's own three quarters three of the configs would not fit an H100."""
    monkeypatch.setenv(SHARE, "0.4")
    take_gpu_memory()
    assert os.environ[SHARE] == "0.4"
    monkeypatch.delenv(SHARE)
    take_gpu_memory()
    assert os.environ[SHARE] == "0.92"
    monkeypatch.setenv(SHARE, "90%")
    with pytest.raises(ValueError, match=f"^{SHARE}='90%': must be a number, such as"):
        take_gpu_memory()


def test_a_deterministic_run_says_so_to_xla(monkeypatch, tmp_path, config):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=here")
    devices.make_deterministic(tmp_path)
    devices.make_deterministic(tmp_path / "other")  # what is set stays
    assert config.jax_persistent_cache_enable_xla_caches == "none"
    assert os.environ["XLA_FLAGS"].split() == [
        "--xla_dump_to=here",
        "--xla_gpu_deterministic_ops=true",
        f"--xla_gpu_per_fusion_autotune_cache_dir={tmp_path}/autotune",
    ]


@pytest.mark.failure(78)
@pytest.mark.failure(86)
@pytest.mark.failure(161)
@pytest.mark.parametrize(
    "name,value",
    [
        ("jax_enable_x64", True),  # it was a TypeError while the sampler was compiled
        ("jax_disable_jit", True),  # it took minutes for a step of the quickstart
        ("jax_numpy_rank_promotion", "raise"),
        ("jax_numpy_dtype_promotion", "strict"),
    ],
)
def test_a_setting_of_jax_that_ends_a_run_is_refused(config, name, value):
    config.update(name, value)
    with pytest.raises(ValueError, match=f"{name.upper()}=.* unset"):
        start_devices(from_config(quickstart.get_config()))


@pytest.mark.failure(171)
def test_two_numbers_of_devices_are_refused(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    c = quickstart.get_config()
    c.mesh.cpu_devices = 2
    with pytest.raises(ValueError, match="^config.mesh.cpu_devices=2: .*_count=4; rem"):
        start_devices(from_config(c))


@pytest.mark.failure(98)
def test_damaged_programs_of_the_cache_are_one_warning(tmp_path, config, capsys):
    keep_programs(str(tmp_path))
    for name in ("jit_a", "jit_b"):
        text = f"Error reading persistent compilation cache entry for {name!r}"
        warnings.showwarning(UserWarning(text), UserWarning, "compiler.py", 1)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("compiles again; delete this folder, or set another")


@pytest.mark.failure(119)
def test_the_cache_of_the_environment_is_used(tmp_path, config, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "own"))
    keep_programs(str(tmp_path / "of the config"))
    assert config.jax_compilation_cache_dir == str(tmp_path / "own")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.failure(87)
def test_a_cache_that_cannot_be_written_is_a_warning(
    tmp_path, config, monkeypatch, capsys
):
    def refuse(**_):
        raise OSError(errno.EROFS, "Read-only file system")

    (tmp_path / "file").write_text("")
    before = config.jax_compilation_cache_dir
    keep_programs(str(tmp_path / "file"))
    monkeypatch.setattr(os.path, "expanduser", str)  # as without a home folder
    keep_programs("~/cache")
    assert config.jax_compilation_cache_dir == before
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    keep_programs(str(tmp_path))
    assert config.jax_compilation_cache_dir == str(tmp_path)  # it can be read
    said = capsys.readouterr().out.splitlines()
    assert [line.partition("cannot be written ")[2] for line in said] == [
        f"({why}), so every start compiles missing programs again; set another folder"
        for why in ("File exists", "there is no home folder", "Read-only file system")
    ]


@pytest.mark.failure(65)
def test_a_platform_that_is_not_there_is_one_line(tmp_path):
    """It was 30 lines of traceback."""
    command = ["-m", "rl.train", "--config=configs/quickstart.py", "--dry_run"]
    env = os.environ | {"JAX_PLATFORMS": "cuda"}
    done = python(*command, f"--workdir={tmp_path}/run", env=env)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: JAX_PLATFORMS='cuda': JAX finds no devices (")
    assert last.endswith("; set JAX_PLATFORMS=cpu to run on the CPU")
