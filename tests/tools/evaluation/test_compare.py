import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.files import read_rows, replace_json, replace_rows
from tools.evaluation.compare import compare, compare_markdown, sign_flip_p_value


def judged(folder, verdicts, **drawing):
    folder.mkdir()
    rows = [
        {"benchmark": name, "id": id, "sample": i, "correct": right}
        for name, of_problem in verdicts.items()
        for id, correct in of_problem.items()
        for i, right in enumerate(correct)
    ]
    replace_rows(folder / "verdicts.jsonl", rows)
    replace_json(folder / "conditions.json", {"drawing": drawing})
    return folder


def test_greedy_runs_are_paired(tmp_path):
    before = {f"p{i}": [i in (0, 1, 2)] for i in range(12)}
    after = {f"p{i}": [i in (1, 2, 3, 4, 5, 6, 7, 8)] for i in range(12)}
    a = judged(tmp_path / "a", {"math500": before, "only_a": before}, template="none")
    b = judged(tmp_path / "b", {"math500": after}, template="r1")
    result = compare([[a], [b]])
    pair = result["pairs"][0]["benchmarks"]["math500"]
    assert pair["lost"] == ["p0"]
    assert pair["gained"] == ["p3", "p4", "p5", "p6", "p7", "p8"]
    # 2 * (C(7,0) + C(7,1)) / 2^7. Unpaired, Fisher's test says 0.10.
    assert pair["p_value"] == pytest.approx(16 / 128)
    assert pair["difference"] == pytest.approx(5 / 12)
    low, high = pair["difference_interval"]
    assert -0.02 < low < 0 and 5 / 12 < high < 0.85  # as p says
    assert pair["about"] == "these checkpoints"
    assert result["benchmarks"] == ["math500"]
    assert result["pairs"][0]["conditions"] == [["template", "none", "r1"]]
    text = compare_markdown(result)
    assert "MATH-500, gained: p3, p4, p5, p6, p7, p8" in text
    assert "| template | `none` | `r1` |" in text
    assert "of these two checkpoints, not of two methods" in text


def test_all_problems_of_several_sets_count_alike(tmp_path):
    first = {"s": {"x": [False]}, "t": {"y": [False], "z": [True], "w": [False]}}
    second = {"s": {"x": [True]}, "t": {"y": [True], "z": [True], "w": [True]}}
    a, b = judged(tmp_path / "a", first), judged(tmp_path / "b", second)
    result = compare([[a], [b]])
    pooled = result["pairs"][0]["pooled"]
    assert pooled["problems"] == 4 and pooled["difference"] == pytest.approx(3 / 4)
    assert pooled["p_value"] == pytest.approx(2 / 8)
    assert pooled["gained"] == ["s/x", "t/y", "t/w"]
    assert "| all problems | 4 | 25.0 | 100.0 | +75.0 [" in compare_markdown(result)


def test_training_seeds_are_told_apart(tmp_path):
    base = judged(tmp_path / "base", {"s": {"x": [False], "y": [False]}})
    one = judged(tmp_path / "one", {"s": {"x": [True], "y": [True]}})
    two = judged(tmp_path / "two", {"s": {"x": [True], "y": [False]}})
    result = compare([[base], [one, two]])
    assert result["pairs"][0]["benchmarks"]["s"]["second"] == pytest.approx(0.75)
    assert result["arms"][1]["accuracies"]["s"] == [1.0, 0.5]
    text = compare_markdown(result)
    assert "## Training seeds" in text and "| 100.0, 50.0 |" in text


def test_methods_are_compared_over_their_training_seeds(tmp_path):
    def model(name, right):
        verdicts = {f"p{i}": [i < right] for i in range(10)}
        return judged(tmp_path / name, {"s": verdicts})

    first = [model(f"a{i}", n) for i, n in enumerate((2, 4))]
    second = [model(f"b{i}", n) for i, n in enumerate((6, 8))]
    pair = compare([first, second])["pairs"][0]
    found = pair["benchmarks"]["s"]
    # Accuracies 0.2, 0.4 and 0.6, 0.8: t = 0.4 / sqrt(0.02), two degrees of freedom.
    assert found["p_value"] == pytest.approx(0.1056, abs=5e-5)
    assert found["about"] == pair["pooled"]["about"] == "the methods"
    assert found["difference_interval"] == pytest.approx((-0.2085, 1.0085), abs=5e-4)
    text = compare_markdown(compare([first, second]))
    assert "Student's t over the models" in text and "two checkpoints" not in text
    assert "not of two methods" in compare_markdown(compare([first[:1], second]))


def test_problems_of_one_template_count_once(tmp_path):
    before = {f"p{i}": [False] for i in range(8)}
    after = {f"p{i}": [i < 4] for i in range(8)}
    arms = [judged(tmp_path / n, {"s": v}) for n, v in (("a", before), ("b", after))]
    for arm in arms:
        rows = [row for _, row in read_rows(arm / "verdicts.jsonl")]
        rows = [row | {"cluster": f"t{int(row['id'][1:]) // 4}"} for row in rows]
        replace_rows(arm / "verdicts.jsonl", rows)
    pair = compare([[arms[0]], [arms[1]]])["pairs"][0]["benchmarks"]["s"]
    assert pair["p_value"] == 1.0  # two templates, one changed; alone 2 / 2**4


def test_greedy_beside_sampled_is_said(tmp_path):
    said = dict(samples=1, temperature=0.0)
    a = judged(tmp_path / "a", {"s": {"x": [True]}}, **said)
    b = judged(tmp_path / "b", {"s": {"x": [True]}}, **said | {"temperature": 1.0})
    c = judged(tmp_path / "c", {"s": {"x": [False]}}, **said)
    text = compare_markdown(compare([[a], [b]]))
    assert "first: greedy; of the second: avg@1 at T=1." in text
    assert "Sampling differs" not in compare_markdown(compare([[a], [c]]))


@pytest.mark.failure(190)
def test_other_verdicts_are_not_compared_unnoticed(tmp_path):
    a, b = (judged(tmp_path / name, {"s": {"x": [True]}}) for name in "ab")
    replace_json(a / "results.json", {"verifier": "1", "reward": "verifier"})
    assert "Judging differs" not in compare_markdown(compare([[a], [b]]))
    for version, reward, same in (
        ("2", "verifier", False),
        ("1", "m:f", False),
        ("1", "verifier + 0.1*m:f", True),  # the first term decides correctness
    ):
        replace_json(b / "results.json", {"verifier": version, "reward": reward})
        text = compare_markdown(compare([[a], [b]]))
        assert same is ("**Judging differs**: give each folder" not in text)


def test_seeds_of_one_arm_are_drawn_alike(tmp_path):
    verdicts = {"s": {"x": [True]}}
    a = judged(tmp_path / "a", verdicts, samples=1, temperature=0.0)
    b = judged(tmp_path / "b", verdicts, samples=1, temperature=0.0)
    c = judged(tmp_path / "c", verdicts, samples=1, temperature=1.0)
    with pytest.raises(ValueError, match="/c: .*, but .* in .*/b; "):
        compare([[a], [b, c]])


@pytest.mark.failure(145)
def test_a_model_counts_once_in_an_arm(tmp_path):
    verdicts = {"s": {"x": [True]}}
    a, b, c = (
        judged(tmp_path / name, verdicts, checkpoint=name == "c") for name in "abc"
    )
    for arm in ([a, b], [a, a]):
        with pytest.raises(ValueError, match="the same model twice; remove one"):
            compare([[c], arm])


def test_what_cannot_be_compared(tmp_path):
    a = judged(tmp_path / "a", {"s": {"x": [True], "y": [True]}})
    b = judged(tmp_path / "b", {"s": {"x": [True]}})
    c = judged(tmp_path / "c", {"t": {"x": [True]}})
    with pytest.raises(ValueError, match="s: problems in only one evaluation: 1, such"):
        compare([[a], [b]])
    with pytest.raises(ValueError, match=r"\(s\) and .* \(t\) have no benchmark in c"):
        compare([[a], [c]])
    with pytest.raises(FileNotFoundError, match="no verdicts.jsonl; finish the eval"):
        compare([[a], [tmp_path]])


def by_enumeration(differences):
    """The share of all sign patterns whose sum is as far from 0 as the one seen."""
    signs = np.array(list(itertools.product((-1, 1), repeat=len(differences))))
    sums = np.abs(signs @ np.abs(differences))
    return float((sums >= abs(np.sum(differences)) - 1e-9).mean())


def test_sign_flips_of_single_verdicts_are_mcnemars_exact_test():
    # Five problems lost, one gained: 2 * (C(6,0) + C(6,1)) / 2^6. The chi-square form
    # without correction says 0.102.
    differences = np.array([-1] * 5 + [1] + [0] * 4)
    assert sign_flip_p_value(differences) == pytest.approx(14 / 64, abs=1e-12)
    assert sign_flip_p_value(np.zeros(7)) == 1.0


@settings(deadline=None)
@given(st.lists(st.integers(-12, 12), min_size=1, max_size=9), st.sampled_from([4, 12]))
def test_sign_flips_are_those_counted_one_by_one(numerators, k):
    differences = np.array(numerators) / k
    counted = by_enumeration(differences)
    assert sign_flip_p_value(differences) == pytest.approx(counted, abs=1e-12)


def test_sign_flips_agree_with_their_estimate():
    rng = np.random.default_rng(5)
    differences = rng.binomial(8, 0.6, 60) / 8 - rng.binomial(8, 0.52, 60) / 8
    exact = sign_flip_p_value(differences)
    # Of 100,000 draws a share near 0.02 has a standard error of 0.0005.
    assert 0.001 < exact < 0.2
    estimate = sign_flip_p_value(differences, most_sums=0)
    assert estimate == pytest.approx(exact, abs=0.003)
    # No common denominator: estimated.
    odd = differences * math.sqrt(2)
    assert sign_flip_p_value(odd) == pytest.approx(exact, abs=0.003)
