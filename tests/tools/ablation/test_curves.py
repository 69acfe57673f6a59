"""ScaleRL's sigmoid is found again where a curve shows it, and only there."""

import numpy as np
import pytest

from tools.ablation.curves import SPENT, Sigmoid, fit_sigmoid, read_curve

PLANTED = Sigmoid(A=0.9, B=1.7, C_mid=3e5)
FIRST = 0.3


def _curve(last=2e6, *, noise=0.0, sigmoid=PLANTED, points=60, seed=0):
    spent = np.linspace(0, last, points + 1)
    values = np.concatenate([[FIRST], sigmoid(spent[1:], FIRST)])
    return spent, values + np.random.default_rng(seed).normal(0, noise, points + 1)


def test_the_formula():
    # Half-way at C_mid; with B = 1, at three times that, three quarters of the way.
    values = Sigmoid(A=0.9, B=1.0, C_mid=100.0)(np.array([100.0, 300.0]), 0.1)
    np.testing.assert_allclose(values, [0.5, 0.7])


def test_an_exact_curve_gives_its_parameters_back():
    found = fit_sigmoid(*_curve())
    assert (found.A, found.B, found.C_mid) == pytest.approx((0.9, 1.7, 3e5), rel=1e-4)
    falling = Sigmoid(A=0.05, B=3.0, C_mid=1e6)
    found = fit_sigmoid(*_curve(sigmoid=falling))
    assert (found.A, found.B, found.C_mid) == pytest.approx((0.05, 3.0, 1e6), rel=1e-3)


def test_the_interval_holds_the_asymptote():
    # 256 completions have a standard error of 0.03.
    found = [fit_sigmoid(*_curve(noise=0.03, seed=seed)) for seed in range(8)]
    assert None not in found
    assert np.mean([fit.A for fit in found]) == pytest.approx(0.9, abs=0.02)
    assert sum(fit.A_low <= 0.9 <= fit.A_high for fit in found) >= 7
    assert np.median([fit.C_mid for fit in found]) == pytest.approx(3e5, rel=0.15)


def test_a_curve_that_does_not_determine_its_asymptote_gives_none():
    """A curve that ended at half of C_mid gave 0.45 for 0.80."""
    half = Sigmoid(A=0.8, B=1.5, C_mid=1e6)
    for last, noise in ((5e5, 0.01), (5e5, 0.03), (1e6, 0.03)):
        curves = [_curve(last, noise=noise, sigmoid=half, seed=s) for s in range(4)]
        found = [fit_sigmoid(*curve) for curve in curves]
        assert found.count(None) >= 3
    assert fit_sigmoid(*_curve(points=8)) is not None
    assert fit_sigmoid(*_curve(points=7)) is None
    flat = [
        fit_sigmoid(*_curve(noise=0.03, seed=seed, sigmoid=Sigmoid(FIRST, 1.0, 1e6)))
        for seed in range(6)
    ]
    assert flat.count(None) >= 5
    assert fit_sigmoid(*read_curve([], "x", SPENT["steps"])) is None


def test_a_point_counts_what_was_spent_before_it():
    rows = [
        {"step": 0, "eval/accuracy": 0.1},
        {"step": 1, "reward/accuracy": 0.2, "sampling/tokens": 10, "seconds/step": 3},
        {"step": 2, "seconds/step": 4},  # skipped: nothing sampled
        {"step": 3, "reward/accuracy": 0.4, "sampling/tokens": 20, "seconds/step": 5},
        {"step": 3, "eval/accuracy": 0.5},
    ]
    spent, values = read_curve(rows, "reward/accuracy", SPENT["tokens"])
    assert (spent.tolist(), values.tolist()) == ([0, 10], [0.2, 0.4])
    spent, values = read_curve(rows, "eval/accuracy", SPENT["tokens"])
    assert (spent.tolist(), values.tolist()) == ([0, 30], [0.1, 0.5])
    assert read_curve(rows, "eval/accuracy", SPENT["steps"])[0].tolist() == [0, 3]
    assert read_curve(rows, "eval/accuracy", SPENT["seconds"])[0].tolist() == [0, 12]
