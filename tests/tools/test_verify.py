"""tools.verify: files of pairs, one verdict, errors that name their row."""

import json

import pytest

from rl.files import replace_rows
from tools import verify


def test_pairs(tmp_path, capsys):
    rows = [
        {"id": "a", "gold": "1/2", "pred": "0.5", "label": True},
        {"id": "b", "gold": "1/2", "pred": "0.6", "label": True},
        {"id": "c", "golds": ["3", "4"], "pred": "\\boxed{4.0}", "mode": "response"},
        {"id": "d", "gold": "3", "pred": "no box", "mode": "response", "label": False},
    ]
    out = tmp_path / "out.json"
    replace_rows(tmp_path / "pairs.jsonl", rows)
    assert verify.main([str(tmp_path / "pairs.jsonl"), "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert [v["correct"] for v in result["verdicts"]] == [True, False, True, False]
    assert result["pairs"] == 4 and result["correct"] == 2
    assert result["agreement"] == pytest.approx(2 / 3)
    assert (result["false_negatives"], result["false_positives"]) == (1, 0)
    assert "b: ['1/2'] | '0.6': label True" in capsys.readouterr().out


def test_one_verdict_is_explained(tmp_path, capsys):
    out = tmp_path / "out.json"
    asked = ["--pred", "2x+3=13", "--gold", "x=5", "--problem", "Solve $2x+3=13$."]
    assert verify.main([*asked, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["equivalent"] is True and result["correct"] is False
    assert result["rule"] == "unfinished"
    assert result["answer read as"] == "Rel(=, Add(Mul(2, x), 3), 13)"
    assert "leaves a relation to be solved" in capsys.readouterr().out
    for arguments in (["--pred", "5"], ["--pred", "5", "pairs.jsonl"]):
        with pytest.raises(SystemExit):
            verify.main(arguments)
    assert "give either files, or both --pred and --gold" in capsys.readouterr().err


@pytest.mark.failure(116)
def test_a_negative_answer_is_no_flag(capsys):
    assert verify.main(["--pred", r"-\frac12", "--gold", "-0.5"]) == 0
    assert "True" in capsys.readouterr().out


@pytest.mark.failure(182)
@pytest.mark.failure(189)
@pytest.mark.failure(33)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"gold": "1", "pred": "1"}\nnot json\n', "pairs.jsonl:2: not JSON"),
        (b'{"gold": "1"}\n', "pairs.jsonl:1: pred=None: must be of type str; "),
        (b'{"pred": "1"}\n', "pairs.jsonl:1: has neither 'gold' nor 'golds'; add one"),
        (b'{"golds": "12", "pred": "1"}\n', "golds='12': must be a list or be None"),
        (b'{"golds": [3], "pred": "1"}\n', "entries: 3 must be of type str"),
        (b'{"gold": "1", "pred": "1", "label": 1}\n',
         "pairs.jsonl:1: label=1: must be of type bool or be None; restore"),
        (b'{"gold": "1", "pred": "1", "mode": "Response"}\n',
         "mode='Response': must be one of answer, response or be None"),
        (b"", "pairs.jsonl: contains no pairs; give rows with gold and pred"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named(tmp_path, capsys, content, message):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(content)
    out = tmp_path / "out.json"
    assert verify.main([str(path), "--json", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_what_sympy_rejects_is_shown():
    assert verify.main(["--pred", "i<2", "--gold", "2", "--explain"]) == 0


def test_a_missing_file_is_named(capsys):
    assert verify.main(["/nowhere/pairs.jsonl"]) == 2
    assert "/nowhere/pairs.jsonl" in capsys.readouterr().err
