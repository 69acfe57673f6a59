"""Tests whether two systems differ on the same problems."""

import math
from fractions import Fraction

import numpy as np
from scipy import stats


def sign_flip_p_value(differences: np.ndarray, *, most_sums: int = 2**21) -> float:
    """Two-sided permutation test of paired scores: were both systems alike?

    If they were, each problem's difference could as well have had the other sign. The
    p-value is the share of all sign patterns whose sum is at least as far from 0 as
    the one seen (Fisher's randomisation test of paired data). It speaks of the mean
    difference, as the bootstrap interval does. Where verdicts are single ones, it is
    McNemar's exact test.

    Args:
      differences: one per problem, `[problems]`, such as those of two avg@k.
      most_sums: exact, by counting the patterns of each sum, where the differences
        have a common denominator and there are at most so many sums. Those of avg@k
        have one: 500 problems of 32 completions have 32,000 sums at most. Elsewhere
        patterns are counted one by one, if there are at most 100,000, and else drawn.
    """
    differences = np.asarray(differences, np.float64)
    if np.count_nonzero(differences) < 2:
        return 1.0
    fractions = [Fraction(d).limit_denominator(10_000) for d in differences]
    unit = math.lcm(*{f.denominator for f in fractions})
    whole = [int(f * unit) for f in fractions]
    sizes = [abs(size) for size in whole]
    common = np.allclose([float(f) for f in fractions], differences, rtol=0, atol=1e-9)
    if not common or 2 * sum(sizes) + 1 > most_sums:
        return float(
            stats.permutation_test(
                (differences,),
                np.sum,
                permutation_type="samples",
                n_resamples=100_000,
                batch=max(1, 2_000_000 // len(differences)),  # for the memory's sake
                rng=np.random.default_rng(0),
            ).pvalue
        )
    chance = np.ones(1)  # of each sum of the differences so far, from the least one up
    for size in sizes:
        grown = np.zeros(len(chance) + 2 * size)
        grown[: len(chance)] += chance / 2
        grown[2 * size :] += chance / 2
        chance = grown
    sums = np.abs(np.arange(len(chance)) - sum(sizes))
    return float(min(1.0, chance[sums >= abs(sum(whole))].sum()))
