"""Paired comparison of systems, and of models that differ in their seed alone."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from rl.statistics import Interval, avg_at_k, t_interval


def sign_flip_p_value(
    differences: np.ndarray,
    *,
    draws: int = 100_000,
    seed: int = 0,
    most_sums: int = 2**21,
) -> float:
    """Two-sided permutation test of paired scores: were both systems alike?

    If they were, each problem's difference could as well have had the other sign. The
    p-value is the share of all sign patterns whose sum is at least as far from 0 as
    the one seen (Fisher's randomisation test of paired data). It speaks of the mean
    difference, as the bootstrap interval does. Where verdicts are single ones, it is
    McNemar's exact test.

    Args:
      differences: one per problem, `[problems]`, such as those of two avg@k.
      draws, seed: of the Monte Carlo estimate, `(1 + hits) / (1 + draws)`, which is
        taken only where the exact one is not.
      most_sums: exact, by counting the patterns of each sum, where the differences
        have a common denominator and there are at most so many sums. Those of avg@k
        have one: 500 problems of 32 completions have 32,000 sums at most. Exact too
        where there are at most so many sign patterns.
    """
    sizes = np.abs(np.asarray(differences, np.float64))
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return 1.0
    fractions = [Fraction(size).limit_denominator(10_000) for size in sizes]
    unit = math.lcm(*{f.denominator for f in fractions})
    whole = [int(f * unit) for f in fractions]
    seen = abs(float(np.sum(differences)))
    exact = np.allclose([float(f) for f in fractions], sizes, rtol=0, atol=1e-9)
    if not exact or 2 * sum(whole) + 1 > most_sums:
        if len(sizes) * 2 ** len(sizes) <= most_sums:
            signs = np.array(list(itertools.product((-1, 1), repeat=len(sizes))))
            return float(_as_far(signs @ sizes, seen).mean())
        return _sampled_sign_flips(sizes, seen, draws, seed)
    chance = np.ones(1)  # of each sum of the differences so far, from the least one up
    for size in whole:
        grown = np.zeros(len(chance) + 2 * size)
        grown[: len(chance)] += chance / 2
        grown[2 * size :] += chance / 2
        chance = grown
    sums = np.abs(np.arange(len(chance)) - sum(whole))
    return float(min(1.0, chance[sums >= round(seen * unit)].sum()))


def _sampled_sign_flips(sizes: np.ndarray, seen: float, draws: int, seed: int) -> float:
    rng, hits, left = np.random.default_rng(seed), 0, draws
    while left:
        rows = min(left, max(1, 4_000_000 // len(sizes)))
        signs = rng.integers(0, 2, (rows, len(sizes)), dtype=np.int8) * 2 - 1
        hits += int(_as_far(signs @ sizes, seen).sum())
        left -= rows
    return (1 + hits) / (1 + draws)


def _as_far(sums: np.ndarray, seen: float) -> np.ndarray:
    # Equal sums may differ in their last bits.
    return np.abs(sums) >= seen * (1 - 1e-12)


@dataclasses.dataclass(frozen=True, slots=True)
class SeedSpread:
    """What a score owes to the seed of training, and what to the problems asked.

    Attributes:
      accuracies: of each trained model.
      interval: 95%, of the mean over training seeds, by Student's t; None for one.
      seed_sd: standard deviation between seeds, as far as drawing does not explain it.
      drawing_sd: what drawing completions anew would give a model's accuracy; None
        where each problem has one completion.
      problem_se: standard error over problems of the mean of all models.
    """

    accuracies: tuple[float, ...]
    interval: Interval | None
    seed_sd: float | None
    drawing_sd: float | None
    problem_se: float


def seed_spread(correct: Sequence[Sequence[Sequence[bool]]]) -> SeedSpread:
    """Parts the noise of models that differ in their training's seed alone.

    Args:
      correct: per model one row of verdicts per problem, the same problems in order.
    """
    scores = np.array([avg_at_k(rows) for rows in correct])
    models, problems = scores.shape
    drawing = [
        p * (1 - p) / (len(row) - 1) if len(row) > 1 else np.nan
        for of_model, rows in zip(scores, correct, strict=True)
        for p, row in zip(of_model, rows, strict=True)
    ]
    of_drawing = float(np.mean(drawing)) / problems  # of one model's accuracy
    means, between = scores.mean(axis=1), None
    if models > 1:
        variance = float(means.var(ddof=1))
        between = math.sqrt(max(0.0, variance - np.nan_to_num(of_drawing)))
    of_problems = scores.mean(axis=0)
    return SeedSpread(
        accuracies=tuple(map(float, means)),
        interval=t_interval(means),
        seed_sd=between,
        drawing_sd=None if math.isnan(of_drawing) else math.sqrt(of_drawing),
        problem_se=float(of_problems.std(ddof=1) / math.sqrt(problems))
        if problems > 1
        else float("nan"),
    )
