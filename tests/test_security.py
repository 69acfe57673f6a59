"""SECURITY.md promises what its tests show; nothing read is ever run."""

import ast
import pathlib
import re

import pytest

from rl.problems.arithmetic import make_tokenizer
from rl.problems.reading import read_problems, write_problems
from rl.types import Problem
from tests.other_processes import ROOT
from tests.rl.examples import encode_text

PAGE = ROOT / "SECURITY.md"
ROOMS = ("rl", "models", "sharding", "rollout", "configs", "tools")

# Where something is imported by name or run, and whose word that is.
MAY = {
    "configs/reading.py": {"run_path"},  # the file that --config names
    "rl/problems/words.py": {"eval"},  # templates in that file
    "rl/problems/functions.py": {"import_module"},  # functions that the config names
    "rl/verifier/worker.py": {"import_module"},  # what the parent's code names
    "rl/verifier/parse/to_sympy.py": {"sympify"},  # numbers, never text
    "tools/gpu_check/__main__.py": {"import_module"},  # of a list in that file
    "tools/bench/__main__.py": {"import_module"},  # of a list in that file
}
RUNS = {
    *("eval", "exec", "__import__", "import_module", "run_module", "run_path"),
    *("sympify", "parse_expr"),
}
UNSAFE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}


def _found(path):
    """Names of what a file calls that can run code, and of modules that unpickle."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            function = node.func
            bare = isinstance(function, ast.Name)
            name = function.id if bare else getattr(function, "attr", "")
            # `model.eval()` of torch is a method of another meaning.
            if name in RUNS and (bare or name not in ("eval", "exec")):
                yield name
            if any(k.arg == "allow_pickle" for k in node.keywords):
                yield "allow_pickle"
            if any(
                k.arg == "trust_remote_code" and ast.unparse(k.value) != "False"
                for k in node.keywords
            ):
                yield "trust_remote_code"
        elif isinstance(node, ast.Import):
            yield from UNSAFE & {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            yield from UNSAFE & {(node.module or "").partition(".")[0]}


@pytest.mark.failure(40)
def test_code_is_imported_or_run_where_the_users_own_config_says_so_and_nowhere_else():
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if names := set(_found(path)):
                found[path.relative_to(ROOT).as_posix()] = names
    assert found == MAY
    # Every tokenizer is asked not to run what its folder brings along.
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            calls = re.findall(r"AutoTokenizer\.from_pretrained\(([^)]*)", _text(path))
            for arguments in calls:
                assert "trust_remote_code=False" in arguments, path


def _text(path):
    # The peers of the benchmarks run in environments of their own.
    return "" if "bench" in path.parts else path.read_text()


def test_a_file_of_problems_is_data_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trap.py").write_text("open('sprung', 'w')\n")
    with pytest.raises(ValueError, match="trap:problems: no such file"):
        read_problems(pathlib.Path("trap:problems"))
    assert not (tmp_path / "sprung").exists()
    problems = [
        Problem(id="a", problem="1+1", answers=("2",), level=3, meta={"unit": "m"}),
        Problem(id="b", problem="$\\frac12$\n", answers=("0.5", "1/2"), source="x"),
    ]
    write_problems(tmp_path / "held_out.jsonl", problems)
    assert read_problems(tmp_path / "held_out.jsonl") == problems


def test_a_chat_template_cannot_leave_its_sandbox(tmp_path):
    tokenizer = make_tokenizer()
    sprung = tmp_path / "sprung"
    tokenizer.chat_template = (
        "{{ cycler.__init__.__globals__.os.system('touch " + str(sprung) + "') }}"
    )
    with pytest.raises(Exception, match="unsafe|undefined"):
        encode_text(tokenizer, "model", "1+1")
    assert not sprung.exists()


def test_every_promise_of_the_page_names_tests_that_are_there():
    rows = re.findall(r"^\| (?!promise|---)(.*) \| (.*) \|$", PAGE.read_text(), re.M)
    assert len(rows) >= 10
    for promise, cell in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cell)
        assert named, promise
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), f"{promise}: {test}"
