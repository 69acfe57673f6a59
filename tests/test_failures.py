"""Compare docs/results/failures.md with the tests that it names and their marks."""

import ast
import collections
import re

from tests.other_processes import ROOT


def _marked():
    """Numbers of failures by test, `tests/...py::test_...`."""
    marked = collections.defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for decorator in getattr(node, "decorator_list", []):
                if ast.unparse(decorator).startswith("pytest.mark.failure("):
                    name = f"{path.relative_to(ROOT)}::{node.name}"
                    marked[name].add(ast.literal_eval(decorator.args[0]))
    return marked


def _rows():
    """Number and last cell of each row of the page."""
    lines = (ROOT / "docs" / "results" / "failures.md").read_text().splitlines()
    rows = [re.fullmatch(r"\| (\d+) \| .* \| (.*?) \|", line) for line in lines]
    return [(int(row[1]), row[2]) for row in rows if row]


MARKED, ROWS = _marked(), _rows()


def test_every_failure_has_its_row():
    assert [number for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    assert set().union(*MARKED.values()) <= set(range(1, len(ROWS) + 1))


def test_every_test_that_is_named_is_there_and_marked():
    for number, cell in ROWS:
        named = re.findall(r"`([^`]+)`", cell)
        assert len(set(named)) == len(named), f"row {number}"
        assert named, f"row {number}"
        for test in named:
            assert number in MARKED[test], f"row {number} names {test}"


def test_every_row_with_tests_has_one_that_needs_no_vllm():
    needs = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^pytestmark = .*pytest\.mark\.vllm", path.read_text(), re.M)
    }
    assert "tests/rollout/vllm/test_sync.py" in needs
    for number, cell in ROWS:
        files = {test.partition("::")[0] for test in re.findall(r"`([^`]+)`", cell)}
        assert files - needs, f"row {number}"
