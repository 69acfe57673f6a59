"""Checks the programs of 0.5B and 1.5B as they are compiled for one H100.

Needs the environment with XLA's CUDA compiler (`make plan`), and no card.
"""

import json
import os
import pathlib
import re
import subprocess
from typing import NamedTuple

import pytest

from tests.other_processes import ROOT, make_program

PREFIX = os.environ.get("COMPASS_PLAN") or ROOT / ".venv-plan"
PYTHON = pathlib.Path(f"{PREFIX}-cuda/bin/python")
# Compiles programs of a config, and writes their texts.
COMPILE = """
import importlib, json, pathlib, sys
from configs.base import from_config
from tools.plan.programs import programs
from tools.plan.targets import parse_target
from tools.plan.workload import make_workload
name, folder, *wanted = sys.argv[1:]
config = importlib.import_module(f"configs.{name}").get_config("h100-1")
config.deterministic = True
_, found = programs(make_workload(from_config(config), parse_target("h100:1")))
texts = {program: found[program].lower().compile().as_text() for program in wanted}
pathlib.Path(folder, "texts.json").write_text(json.dumps(texts))
"""
# Replaces the assembler: keeps what it reads and what it reports.
PTXAS = """
case "$1" in --version) exec {ptxas} "$@";; esac
cp "$1" {folder}/$$.ptx
exec {ptxas} -v "$@" 2> {folder}/$$.report
"""
PROGRAMS = {
    "sampling": ("prefill", "insert", "decode"),
    "update": ("score", "accumulate"),
}
SMALL, LARGE = "qwen2_5_0_5b", "qwen2_5_math_1_5b"
SAMPLING, UPDATES = ([(SMALL, of), (LARGE, of)] for of in PROGRAMS)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


class Compiled(NamedTuple):
    """Texts by program, the PTX of all, and the spilled bytes of each kernel."""

    texts: dict[str, str]
    ptx: str
    spilled: dict[str, int]


@pytest.fixture(
    scope="module", params=[*SAMPLING, *UPDATES], ids=lambda pair: "-".join(pair)
)
def compiled(request, tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} does not exist; run `make plan`")
    name, of = request.param
    folder = tmp_path_factory.mktemp(of)
    (ptxas,) = PYTHON.parents[1].rglob("bin/ptxas")
    toolkit = folder / "nvidia" / ptxas.parents[1].name
    (toolkit / "bin").mkdir(parents=True)
    (toolkit / "nvvm").symlink_to(ptxas.parents[1] / "nvvm")
    make_program(toolkit / "bin/ptxas", PTXAS.format(ptxas=ptxas, folder=folder))
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "PYTHONPATH": f"{folder}:{ROOT}",
    }
    command = [PYTHON, "-c", COMPILE, name, folder, *PROGRAMS[of]]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    report = "".join(path.read_text() for path in folder.glob("*.report"))
    kernels = re.findall(
        r"properties for (\S+)\n\s+\d+ bytes stack frame, (\d+) bytes spill", report
    )
    return Compiled(
        texts=json.loads((folder / "texts.json").read_text()),
        ptx="".join(path.read_text() for path in folder.glob("*.ptx")),
        spilled={kernel: int(size) for kernel, size in kernels},
    )


def _only(pairs):
    return pytest.mark.parametrize(
        "compiled", pairs, indirect=True, ids=["-".join(pair) for pair in pairs]
    )


def _loops(text):
    """Returns how many loops have a static trip count, and how many do not."""
    loops = [line for line in text.splitlines() if " while(" in line]
    static = sum("known_trip_count" in line for line in loops)
    return static, len(loops) - static


def test_no_kernel_has_a_compare_and_swap_loop(compiled):
    assert ".entry" in compiled.ptx
    assert not re.search(r"\b(atom|red)\S*\.cas", compiled.ptx)


def test_no_kernel_spills_registers(compiled):
    assert len(compiled.spilled) > 20
    spilled = {k: size for k, size in compiled.spilled.items() if size}
    # The loss of 32,768 tokens and its statistics: two registers with jax 0.10.
    assert spilled.pop("input_divide_multiply_reduce_select_fusion", 0) <= 8
    assert not spilled


@_only(SAMPLING)
def test_eight_tokens_are_decoded_without_a_branch(compiled):
    assert " conditional(" not in compiled.texts["decode"]
    # The host reads a predicate after eight tokens; within them all is static.
    assert _loops(compiled.texts["decode"]) == (1, 1)


@_only(SAMPLING)
def test_logits_are_written_once_and_read_once(compiled):
    """0.31 GB a token at 256 slots; other kernels gather 128 words of each row."""
    decode, logits = compiled.texts["decode"], "f32[256,151936]"
    assert len(re.findall(rf"= {re.escape(logits)}\S* fusion\(", decode)) == 1
    kernel = r"^%?\S+ \((.*)\) -> .*\{\n((?:  .*\n)*)\}"
    found = re.findall(kernel, decode, re.M)
    readers = [body for operands, body in found if logits in operands]
    assert sum(" gather(" not in body for body in readers) == 1
    assert 2 * 4 * 256 * 151936 < 0.35e9


@_only(UPDATES)
def test_every_loop_of_an_update_has_a_static_trip_count(compiled):
    for text in compiled.texts.values():
        assert " conditional(" not in text
        static, dynamic = _loops(text)
        assert static and not dynamic


@_only(UPDATES)
def test_a_deterministic_update_adds_no_float_atomically(compiled):
    assert not re.search(r"\b(atom|red)\.\S*add\S*\.(f|bf)\d", compiled.ptx)
    for line in "".join(compiled.texts.values()).splitlines():
        if " scatter(" in line:
            assert "unique_indices=true" in line, line
