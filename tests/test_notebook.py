"""The notebook of the quickstart runs from top to bottom."""

import ast
import json
import pathlib

import pytest

PATH = pathlib.Path(__file__).resolve().parents[1] / "docs" / "quickstart.ipynb"


@pytest.mark.slow
@pytest.mark.ci
def test_every_cell_runs_and_the_curve_is_plotted(tmp_path, monkeypatch, capsys):
    """Run the cells as a kernel does: one namespace, the last expression is shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(PATH.parents[1]))
    names, shown = {}, []
    for cell in json.loads(PATH.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            last = compile(ast.Expression(last.value), "cell", "eval")
            shown.append(eval(last, names))
    assert "step 20/20  reward " in capsys.readouterr().out
    curve, report = (page._repr_html_() for page in shown if page is not None)
    assert "eval/accuracy, step 20: 0." in curve and "Curves" in report
    assert curve.startswith("<iframe") and names["right"].logprobs[-1] < 0
    steps = {row["step"] for row in names["rows"] if "eval/accuracy" in row}
    assert steps == {0, 5, 10, 15, 20}
