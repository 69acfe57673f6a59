import json

import pytest

from rl.evaluation.compare import compare, compare_markdown


def judged(folder, verdicts, **drawing):
    folder.mkdir()
    rows = [
        {"benchmark": name, "id": id, "sample": i, "answer": "", "correct": right}
        for name, of_problem in verdicts.items()
        for id, correct in of_problem.items()
        for i, right in enumerate(correct)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "verdicts.jsonl").write_text(text)
    (folder / "conditions.json").write_text(json.dumps({"drawing": drawing}))
    return folder


def test_greedy_runs_are_paired(tmp_path):
    before = {f"p{i}": [i in (0, 1, 2)] for i in range(12)}
    after = {f"p{i}": [i in (1, 2, 3, 4, 5, 6, 7, 8)] for i in range(12)}
    a = judged(tmp_path / "a", {"math500": before, "only_a": before}, template="none")
    b = judged(tmp_path / "b", {"math500": after}, template="r1")
    result = compare(a, b)
    pair = result["benchmarks"]["math500"]
    assert pair["lost"] == ["p0"]
    assert pair["gained"] == ["p3", "p4", "p5", "p6", "p7", "p8"]
    # 2 * (C(7,0) + C(7,1)) / 2^7. Unpaired, Fisher's test says 0.10.
    assert pair["p_value"] == pytest.approx(16 / 128)
    assert pair["difference"] == pytest.approx(5 / 12)
    low, high = pair["difference_interval"]
    assert 0 <= low < 5 / 12 < high < 0.85
    assert list(result["benchmarks"]) == ["math500"]
    assert result["conditions"] == [["template", "none", "r1"]]
    text = compare_markdown(result, flips=2)
    assert "MATH-500, gained: p3, p4 and 4 more" in text
    assert "| template | `none` | `r1` |" in text


def test_sampled_runs_flip_where_the_majority_of_samples_does(tmp_path):
    a = judged(tmp_path / "a", {"s": {"x": [True, False], "y": [True, True, False]}})
    b = judged(tmp_path / "b", {"s": {"x": [True, True], "y": [False, True, False]}})
    pair = compare(a, b)["benchmarks"]["s"]
    assert (pair["lost"], pair["gained"]) == (["y"], ["x"])
    assert pair["difference"] == pytest.approx((0.5 - 1 / 3) / 2)


def test_what_cannot_be_compared(tmp_path):
    a = judged(tmp_path / "a", {"s": {"x": [True], "y": [True]}})
    b = judged(tmp_path / "b", {"s": {"x": [True]}})
    c = judged(tmp_path / "c", {"t": {"x": [True]}})
    with pytest.raises(ValueError, match=r"s: 1 problems cannot be paired, y is only "):
        compare(a, b)
    with pytest.raises(ValueError, match=r"\(s\) and .* \(t\) have no benchmark in c"):
        compare(a, c)
    with pytest.raises(FileNotFoundError, match="no verdicts.jsonl; finish the eval"):
        compare(a, tmp_path)
