"""What `pip install` gives: the packages whole, versions that agree."""

import os
import re
import shlex
import subprocess
import tomllib
import zipfile
from importlib import metadata

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import tools
from tests.other_processes import ROOT, python

PACKAGES = ("rl", "models", "sharding", "rollout", "configs", "tools")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = ("3.11", "3.12", "3.13")


def _requirements(name):
    lines = (ROOT / name).read_text().splitlines()
    stated = [line.split("#")[0].strip() for line in lines]
    return [Requirement(line) for line in stated if line]


def _locked(name):
    """{package: [(version, marker or None, hashes)]} of a lock file."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    pins = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            pin, *hashes = line.split("--hash=")
            requirement = Requirement(pin.strip())
            (version,) = (s.version for s in requirement.specifier)
            entry = version, requirement.marker, [h.strip() for h in hashes]
            pins.setdefault(requirement.name, []).append(entry)
    return pins


def _versions(pins, name, python):
    """The versions that a machine with Linux and this Python gets."""
    here = {"python_version": python, "python_full_version": f"{python}.0"}
    return [
        version
        for version, marker, _ in pins.get(name.lower().replace("_", "-"), ())
        if marker is None or Marker(str(marker)).evaluate(here)
    ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The distribution, built from what git tracks."""
    folder = tmp_path_factory.mktemp("source")
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True
    )
    if tracked.returncode:
        pytest.skip("no git checkout")
    for name in tracked.stdout.split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    build = "from setuptools import build_meta as b; print(b.build_wheel('.'))"
    done = python("-c", build, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, zipfile.ZipFile(folder / done.stdout.splitlines()[-1])


def test_wheel_holds_every_file_of_the_packages_and_no_other(wheel):
    folder, archive = wheel
    source = {
        path.relative_to(folder).as_posix()
        for package in PACKAGES
        for path in (folder / package).rglob("*")
        if path.is_file()
    }
    held = {n for n in archive.namelist() if ".dist-info/" not in n}
    assert held == source
    assert any(name.endswith(".html") for name in held)


def test_wheel_asks_for_what_the_requirements_files_say(wheel):
    _, archive = wheel
    (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
    asked = metadata.PathDistribution(zipfile.Path(archive, name[: -len("METADATA")]))
    extras = {
        path.name[len("requirements-") : -len(".txt")]: path.name
        for path in ROOT.glob("requirements-*.txt")
    }
    assert set(asked.metadata.get_all("Provides-Extra")) == set(extras)
    assert set(extras) == {"data", "gguf", "gpu", "gpu-cuda12", "test", "tpu", "vllm"}
    by_extra = {None: set(), **{extra: set() for extra in extras}}
    for text in asked.requires:
        requirement = Requirement(text)
        marker = re.fullmatch(r'extra == "(.+)"', str(requirement.marker or ""))
        requirement.marker = None
        by_extra[marker and marker[1]].add(str(requirement))
    assert by_extra[None] == {str(r) for r in _requirements("requirements.txt")}
    for extra, file in extras.items():
        assert by_extra[extra] == {str(r) for r in _requirements(file)}, extra


@pytest.mark.parametrize("python", PYTHONS)
def test_locks_hold_one_version_of_each_requirement(python):
    assert python in SpecifierSet(PYPROJECT["project"]["requires-python"])
    pins = _locked("requirements.lock")
    for requirement in _requirements("requirements.txt"):
        (version,) = _versions(pins, requirement.name, python)
        assert version in requirement.specifier, requirement.name
    pins |= _locked("requirements-test.lock")
    for requirement in _requirements("requirements-test.txt"):
        if requirement.name != "torch":  # each machine takes another build of it
            (version,) = _versions(pins, requirement.name, python)
            assert version in requirement.specifier, requirement.name


@pytest.mark.parametrize("name", [p.name for p in ROOT.glob("*.lock")])
def test_locks_have_a_hash_for_every_file(name):
    pins = _locked(name)
    assert len(pins) > (2 if "-plan-" in name else 20)
    for package, entries in pins.items():
        for version, _, hashes in entries:
            assert hashes, f"{package}=={version}"
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in hashes)


def test_locks_do_not_contradict_each_other():
    for name in ("test", "plan-tpu", "plan-cuda"):
        further = _locked(f"requirements-{name}.lock")
        assert further and not set(_locked("requirements.lock")) & set(further)


@pytest.mark.parametrize("python", PYTHONS)
def test_compilers_are_of_the_trainers_jax(python):
    (jax,) = _versions(_locked("requirements.lock"), "jax", python)
    cuda = _locked("requirements-plan-cuda.lock")
    assert _versions(cuda, "jax-cuda12-plugin", python) == [jax]
    assert _versions(cuda, "jax-cuda12-pjrt", python) == [jax]
    assert len(_versions(_locked("requirements-plan-tpu.lock"), "libtpu", python)) == 1


def test_every_command_is_listed():
    mains = set()
    for path in (ROOT / "tools").rglob("*.py"):
        if '__name__ == "__main__"' in path.read_text():
            module = ".".join(path.relative_to(ROOT / "tools").with_suffix("").parts)
            mains.add(module.removesuffix(".__main__"))
    mains.remove("bench.trl_training")  # `bench learning` runs it by itself
    lines = re.findall(r"^    (\w+(?:, \w+)*)  ", tools.__doc__, re.M)
    assert sorted(", ".join(lines).split(", ")) == sorted(mains)


@pytest.mark.failure(108)
@pytest.mark.parametrize("module", ["tools.verify", "rollout.vllm.server"])
def test_help_needs_no_docstrings(module):
    done = python("-OO", "-m", module, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout and "None" not in done.stdout.partition("\n")[0]


@pytest.mark.failure(117)
def test_help_does_not_depend_on_the_width_of_a_terminal():
    command = "-m", "tools.curate", "--help"
    narrow, wide = (
        python(*command, env=os.environ | {"COLUMNS": width}, check=True).stdout
        for width in ("1", "88")
    )
    assert narrow == wide != ""


def _dockerfile(instruction):
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith(instruction + " ")]
    assert lines
    return [line.removeprefix(instruction).strip() for line in lines]


def test_image_copies_what_exists_and_is_in_its_context():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line[1:] for line in ignored if line.startswith("!")]
    context = {path.name for pattern in patterns for path in ROOT.glob(pattern)}
    assert ignored[0] == "*" and context >= set(PACKAGES)
    for line in _dockerfile("COPY"):
        for pattern in set(shlex.split(line)[:-1]) - {"."}:
            found = {path.name for path in ROOT.glob(pattern)}
            assert found and found <= context, pattern


def test_image_runs_shell_that_parses_on_requirements_that_exist():
    for script in _dockerfile("RUN"):
        assert subprocess.run(["sh", "-nc", script]).returncode == 0, script
        for name in re.findall(r"-r ([\w.-]+\.(?:txt|lock))", script):
            assert (ROOT / name).is_file(), name
    assert _dockerfile("ENTRYPOINT") == ['["python", "-m"]']


def test_one_version_is_stated_everywhere():
    version = PYPROJECT["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == version
    assert citation["license"] == PYPROJECT["project"]["license"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[(.+?)\]", changelog, re.M)[1] == version
