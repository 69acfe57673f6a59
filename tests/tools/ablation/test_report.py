"""Means, intervals, tests and noise, against figures worked out by hand."""

import math

import pytest

from tools.ablation.report import compare

# Student's t at 0.975, from tables: 1, 2 and 4 degrees of freedom.
T1, T2, T4 = 12.7062, 4.30265, 2.77645

RUNS = {
    "plain": [{"x": 1.0}, {"x": 2.0}, {"x": 3.0}],
    "better": [{"x": 3.0}, {"x": 4.0}, {"x": 8.0}],
}


def test_means_and_differences_over_seeds():
    found = compare(RUNS, reference="plain")
    plain, better = (found["cells"][arm]["x"] for arm in ("plain", "better"))
    assert (plain["mean"], plain["seeds"], plain["difference"]) == (2.0, 3, None)
    half = T2 * 1 / math.sqrt(3)
    assert plain["interval"] == pytest.approx((2 - half, 2 + half), rel=1e-5)
    # Means 2 and 5, variances 1 and 7: pooled 4, standard error 2 sqrt(2/3).
    difference = better["difference"]
    assert (difference["mean"], difference["seeds"]) == (3.0, 3)
    half = T4 * 2 * math.sqrt(2 / 3)
    assert difference["interval"] == pytest.approx((3 - half, 3 + half), rel=1e-5)
    assert difference["p_value"] == pytest.approx(0.1400, abs=5e-4)
    assert difference["p_adjusted"] == difference["p_value"]


def test_p_values_are_adjusted_for_the_number_of_arms():
    arms = {name: [{"x": m}, {"x": m + 1}] for name, m in
            (("plain", 0.0), ("a", 10.0), ("b", 20.0), ("c", 0.5))}  # fmt: skip
    cells = compare(arms, reference="plain")["cells"]
    found = [cells[arm]["x"]["difference"] for arm in "abc"]
    raw = [f["p_value"] for f in found]
    adjusted = [f["p_adjusted"] for f in found]
    assert adjusted == pytest.approx([2 * raw[0], 3 * raw[1], raw[2]])


def test_the_noise_is_pooled_over_arms():
    noise = compare(RUNS, reference="plain")["noise"]["x"]
    assert noise == pytest.approx(2.0)  # variances 1 and 7, two degrees of freedom each


def test_missing_figures_and_single_seeds():
    runs = {
        "plain": [{"x": 1.0, "y": 0.5}, {"x": 2.0}],
        "late": [{"x": 2.5}, {"x": 9.5, "y": 1.0}],
        "never": [],
    }
    found = compare(runs, reference="plain")
    late = found["cells"]["late"]
    assert (late["x"]["mean"], late["x"]["seeds"]) == (6.0, 2)
    assert late["x"]["difference"]["mean"] == 4.5
    single = late["y"]["difference"]
    assert (single["mean"], single["seeds"]) == (0.5, 1)
    assert single["interval"] is single["p_value"] is None
    assert found["cells"]["never"] == {}
    half = T1 * 3.5  # sd 7 / sqrt(2), by the root of 2 seeds
    assert late["x"]["interval"] == pytest.approx((6 - half, 6 + half), rel=1e-5)
    assert set(found["noise"]) == {"x"}


def test_the_reference_without_runs_leaves_means_alone():
    found = compare({"a": [], "b": [{"x": 1.0}]}, reference="a")
    assert found["cells"]["b"]["x"]["mean"] == 1.0
    assert found["cells"]["b"]["x"]["difference"] is None
    assert found["cells"]["b"]["x"]["interval"] is None
