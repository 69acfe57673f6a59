"""Means, intervals, paired tests and noise, against figures worked out by hand."""

import math

import pytest

from tools.ablation.compare import compare, least_p_value

# Student's t at 0.975, from tables: 1, 2 and 4 degrees of freedom.
T1, T2, T4 = 12.7062, 4.30265, 2.77645

RUNS = {
    "plain": {0: {"x": 1.0}, 1: {"x": 2.0}, 2: {"x": 3.0}},
    "better": {0: {"x": 3.0}, 1: {"x": 4.0}, 2: {"x": 8.0}},
}


def test_means_and_differences_of_the_same_seed():
    found = compare(RUNS, reference="plain")
    plain, better = (found["cells"][arm]["x"] for arm in ("plain", "better"))
    assert (plain["mean"], plain["seeds"], plain["difference"]) == (2.0, 3, None)
    half = T2 * 1 / math.sqrt(3)
    assert plain["interval"] == pytest.approx((2 - half, 2 + half), rel=1e-5)
    # 2, 2 and 5: mean 3, sd sqrt(3).
    difference = better["difference"]
    assert (difference["mean"], difference["seeds"]) == (3.0, 3)
    assert difference["interval"] == pytest.approx((3 - T2, 3 + T2), rel=1e-5)
    # Of eight patterns of signs, all plus and all minus are as far from 0.
    assert difference["p_value"] == pytest.approx(0.25)


def test_the_noise_is_pooled_over_arms():
    noise = compare(RUNS, reference="plain")["noise"]["x"]
    # Variances 1 and 7, two degrees of freedom each.
    assert (noise["degrees"], noise["seeds"]) == (4, 3)
    assert noise["sd"] == pytest.approx(2.0)
    assert noise["shows"] == pytest.approx(T4 * 2 * math.sqrt(2 / 3), rel=1e-5)


def test_only_what_both_have_is_compared():
    runs = {
        "plain": {0: {"x": 1.0, "y": 0.5}, 1: {"x": 2.0}},
        "late": {1: {"x": 2.5}, 5: {"x": 9.5, "y": 1.0}},
        "never": {},
    }
    found = compare(runs, reference="plain")
    late = found["cells"]["late"]
    common = late["x"]["difference"]
    assert (late["x"]["mean"], late["x"]["seeds"]) == (6.0, 2)
    assert (common["mean"], common["seeds"]) == (0.5, 1)
    assert common["interval"] is common["p_value"] is None
    assert late["y"]["difference"] is None
    assert found["cells"]["never"] == {}
    half = T1 * 3.5  # sd 7 / sqrt(2), by the root of 2 seeds
    assert late["x"]["interval"] == pytest.approx((6 - half, 6 + half), rel=1e-5)
    assert set(found["noise"]) == {"x"}


def test_a_test_by_signs_cannot_say_more_than_its_seeds_allow():
    assert [least_p_value(n) for n in (1, 2, 3, 5, 6)] == [1, 0.5, 0.25, 1 / 16, 1 / 32]
    for seeds in (2, 3, 5):
        runs = {
            arm: {s: {"x": 10.0 * (arm == "b") + math.sqrt(s)} for s in range(seeds)}
            for arm in "ab"
        }
        p = compare(runs, reference="a")["cells"]["b"]["x"]["difference"]["p_value"]
        assert p == pytest.approx(least_p_value(seeds))


def test_the_reference_without_runs_leaves_means_alone():
    found = compare({"a": {}, "b": {0: {"x": 1.0}}}, reference="a")
    assert found["cells"]["b"]["x"]["mean"] == 1.0
    assert found["cells"]["b"]["x"]["difference"] is None
    assert found["cells"]["b"]["x"]["interval"] is None
