"""What the programs of 0.5B and 1.5B hold when they are compiled for one H100.

Needs the environment with XLA's CUDA compiler (`make plan`), and no card.
"""

import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path(
    os.environ.get("PLAN_CUDA_PYTHON", ROOT / ".venv-plan-cuda/bin/python")
)
# Compiles programs of a config; prints the text of each, and ptxas's words of it.
COMPILE = """
import importlib, json, pathlib, subprocess, sys
from tools.plan.programs import programs
from tools.plan.targets import parse_target
from tools.plan.workload import make_workload
name, deterministic, folder, wanted = sys.argv[1:]
config = importlib.import_module(f"configs.{name}").get_config("h100-1")
config.deterministic = deterministic == "True"
_, found = programs(make_workload(config, parse_target("h100:1")))
texts = {}
for program in wanted.split(","):
    texts[program] = found[program].lower().compile().as_text()
(pathlib.Path(folder) / "texts.json").write_text(json.dumps(texts))
import nvidia
root = pathlib.Path(nvidia.__path__[0])
ptxas = next(root.rglob("bin/ptxas"))
said = ""
for ptx in pathlib.Path(folder).glob("*.ptx"):
    command = [ptxas, "-v", "-arch=sm_90a", "-o", "/dev/null", ptx]
    said += subprocess.run(command, capture_output=True, text=True, check=True).stderr
(pathlib.Path(folder) / "ptxas.txt").write_text(said)
"""


def _compiled(folder, name, programs, *, deterministic=False):
    """Each program's text, all their PTX, and the kernels that spill registers."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is not there; `make plan` makes it")
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_as_text=false",
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [PYTHON, "-c", COMPILE, name, str(deterministic), folder, programs]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    texts = json.loads((folder / "texts.json").read_text())
    ptx = "".join(path.read_text() for path in folder.glob("*.ptx"))
    said = (folder / "ptxas.txt").read_text()
    kernels = re.findall(
        r"properties for (\S+)\n\s+\d+ bytes stack frame, (\d+) bytes spill", said
    )
    assert kernels
    return texts, ptx, [name for name, spilled in kernels if int(spilled)]


def _loops(text):
    """How many loops have a known length, and how many have not."""
    loops = [line for line in text.splitlines() if " while(" in line]
    known = sum("known_trip_count" in line for line in loops)
    return known, len(loops) - known


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["qwen2_5_0_5b", "qwen2_5_math_1_5b"])
def test_sampling_branches_nowhere_and_reads_the_logits_once(name, tmp_path):
    texts, ptx, spilling = _compiled(tmp_path, name, "prefill,insert,decode")
    assert not re.search(r"atom\S*\.cas", ptx)
    assert not spilling
    decode = texts["decode"]
    assert " conditional(" not in decode
    # The host looks after eight tokens; within them everything is known.
    assert _loops(decode) == (1, 1)
    # Written by the head's product; read by the blocks' sums, and where it is gathered.
    logits = r"f32\[256,151936\]"
    reads = re.findall(rf"^%?(\S+) \([^)]*: {logits}", decode, re.M)
    whole = [one for one in reads if "reduce" in one and "compare" not in one]
    assert len(whole) == 1
    assert len(re.findall(rf"= {logits}\S* fusion\(", decode)) == 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["qwen2_5_0_5b", "qwen2_5_math_1_5b"])
def test_an_update_has_loops_of_known_length_and_adds_no_float_atomically(
    name, tmp_path
):
    texts, ptx, spilling = _compiled(
        tmp_path, name, "score,accumulate", deterministic=True
    )
    assert not re.search(r"\b(atom|red)\.\S*(cas|add\S*\.f\d)", ptx)
    assert not spilling
    for text in texts.values():
        assert " conditional(" not in text
        known, unknown = _loops(text)
        assert known and not unknown
