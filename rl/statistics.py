"""Computes scores of repeated trials, confidence intervals and tests.

`correct` has one row of verdicts per problem; rows may differ in length. Problems, or
clusters of problems, are treated as independent; completions of one problem are not.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from scipy import stats

Interval = tuple[float, float]


def avg_at_k(correct: Sequence[Sequence[bool]]) -> np.ndarray:
    """Returns each problem's share of correct completions, `[problems]`."""
    return np.array([np.mean(row) for row in correct], np.float64)


def pass_at_k(correct: Sequence[Sequence[bool]], k: int) -> np.ndarray:
    """Returns pass@k of each problem, `[problems]`.

    pass@k is the probability that at least one of k completions is correct. If c of n
    completions are correct, its unbiased estimate is `1 - C(n - c, k) / C(n, k)` (Chen
    et al., arXiv 2107.03374). Raises ValueError if k is below 1 or above the n of a
    problem.
    """
    n = np.array([len(row) for row in correct])
    c = np.array([np.sum(row) for row in correct])
    if k < 1 or n.min() < k:
        raise ValueError(
            f"pass@{k}: k must be from 1 to {n.min()}, the fewest completions of a"
            " problem"
        )
    all_wrong = np.ones(len(n))  # a product, since binomials could overflow
    for drawn in range(k):
        all_wrong *= np.maximum(n - c - drawn, 0) / (n - drawn)
    return 1 - all_wrong


def t_interval(values: Sequence[float]) -> Interval | None:
    """Returns Student's t 95% interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(np.mean(values) - half), float(np.mean(values) + half)


def wilson_interval(successes: int, trials: int) -> Interval:
    """Returns Wilson's 95% score interval of a proportion of independent trials."""
    test = stats.binomtest(int(successes), int(trials))
    low, high = test.proportion_ci(0.95, method="wilson")
    return float(low), float(high)


def mean_interval(
    scores: np.ndarray, clusters: Sequence[Hashable] | None = None
) -> Interval:
    """Returns the 95% interval of the mean of `scores [problems]`, each in [0, 1].

    `clusters` has the cluster of each problem, such as its template. The independent
    units are the clusters; without `clusters`, the problems.

    The interval is Wilson's score interval with `p (1 - p) / var(mean)` trials, where p
    is the mean. The variance is computed over units. The quantile is Student's t with
    `min(1 + s, units - 1)` degrees of freedom. s is Kish's effective sample size of the
    units' sums of `scores`, or of `1 - scores`, whichever is smaller. Unlike a
    bootstrap, this interval has good coverage when few problems are solved.

    In two cases it is the ordinary Wilson interval. If the mean is 0 or 1, or there is
    only one unit, the units are the trials; the number of successes is rounded. If all
    scores are 0 or 1 and no two problems share a cluster, the problems are the trials.
    """
    scores = np.asarray(scores, np.float64)
    mean, groups = float(scores.mean()), _groups(len(scores), clusters)
    units = int(groups.max()) + 1
    if mean in (0.0, 1.0) or units < 2:
        return wilson_interval(round(mean * units), units)
    if units == len(scores) and np.isin(scores, (0, 1)).all():
        return wilson_interval(int(scores.sum()), len(scores))
    variance = _variance_of_mean(scores, groups)
    effective = min(mean * (1 - mean) / max(variance, 1e-12), 1e9)
    right, wrong = np.bincount(groups, scores), np.bincount(groups, 1 - scores)
    informative = min(float(x.sum() ** 2 / (x**2).sum()) for x in (right, wrong))
    t = float(stats.t.ppf(0.975, min(informative + 1, units - 1)))
    centre = (mean + t * t / (2 * effective)) / (1 + t * t / effective)
    half = t * np.sqrt(mean * (1 - mean) / effective + (t / (2 * effective)) ** 2)
    half /= 1 + t * t / effective
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def difference_interval(
    differences: np.ndarray, clusters: Sequence[Hashable] | None = None
) -> Interval:
    """Returns the 95% interval of the mean of paired `differences [problems]`.

    Uses Student's t over problems, or over their clusters. A single problem or cluster
    bounds nothing, so the interval is then [-1, 1], which holds all differences of
    accuracies.
    """
    differences = np.asarray(differences, np.float64)
    mean, groups = float(differences.mean()), _groups(len(differences), clusters)
    units = int(groups.max()) + 1
    if units < 2:
        return -1.0, 1.0
    half = float(stats.t.ppf(0.975, units - 1))
    half *= np.sqrt(_variance_of_mean(differences, groups))
    return mean - float(half), mean + float(half)


def compare_seeds(
    first: Sequence[float], second: Sequence[float]
) -> tuple[Interval, float] | None:
    """Compares two methods by the scores of models trained with different seeds.

    Returns the 95% interval of the difference of means, second minus first, and the
    two-sided p-value, by Student's t-test with pooled variance. Returns None if a
    method has fewer than two models. If the scores of neither method vary, the interval
    has width 0, and p is 1 for equal means and 0 otherwise.
    """
    if min(len(first), len(second)) < 2:
        return None
    mean = float(np.mean(second) - np.mean(first))
    if np.ptp(first) == np.ptp(second) == 0:
        return (mean, mean), float(mean == 0)
    test = stats.ttest_ind(second, first)
    low, high = test.confidence_interval(0.95)
    return (float(low), float(high)), float(test.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values adjusted by Holm's method, in input order.

    If all hypotheses with an adjusted p below 0.05 are rejected, the probability of any
    false rejection is at most 5%. A p-value of NaN counts as 1.
    """
    values = np.nan_to_num(np.asarray(p_values, np.float64), nan=1.0)
    order = np.argsort(values, kind="stable")
    remaining = np.arange(len(p_values), 0, -1)
    adjusted = np.minimum(1, remaining * values[order])
    return np.maximum.accumulate(adjusted)[np.argsort(order)].tolist()


def cluster_sums(
    values: np.ndarray, clusters: Sequence[Hashable] | None = None
) -> np.ndarray:
    """Returns sums of `values [problems]` by cluster; without clusters, `values`."""
    return np.bincount(_groups(len(values), clusters), np.asarray(values, np.float64))


def _groups(count: int, clusters: Sequence[Hashable] | None) -> np.ndarray:
    """Returns the cluster index of each problem; without clusters, its own index."""
    if clusters is None:
        return np.arange(count)
    number = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    return np.array([number[name] for name in clusters])


def _variance_of_mean(values: np.ndarray, groups: np.ndarray) -> float:
    """Returns the cluster-robust variance of the mean of `values`."""
    residuals = np.bincount(groups, values - values.mean())
    units = len(residuals)
    return float((residuals**2).sum() * units / (units - 1) / len(values) ** 2)
