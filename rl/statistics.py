"""Scores of repeated trials and their error bars. Pure functions of arrays.

`correct` is one row of verdicts per problem: rows may differ in length. The three
scores give one number in [0, 1] per problem; a benchmark's figure is their mean, and
its interval comes from resampling problems, since the samples of one problem are not
independent.
"""

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np
from scipy import stats

Interval = tuple[float, float]


def avg_at_k(correct: Sequence[Sequence[bool]]) -> np.ndarray:
    """Share of right completions per problem, `[problems]`."""
    return np.array([np.mean(row) for row in correct], np.float64)


def pass_at_k(correct: Sequence[Sequence[bool]], k: int) -> np.ndarray:
    """Chance that one of k completions, drawn without replacement, is right.

    The unbiased estimate `1 - C(n - c, k) / C(n, k)` of Chen et al., arXiv 2107.03374,
    from c right ones among n, as a product that cannot overflow.

    Raises:
      ValueError: where a problem has fewer than k completions.
    """
    n = np.array([len(row) for row in correct])
    c = np.array([np.sum(row) for row in correct])
    if k < 1 or n.min() < k:
        raise ValueError(f"pass@{k} of a problem with {n.min()} completions")
    all_wrong = np.ones(len(n))
    for drawn in range(k):
        all_wrong *= np.maximum(n - c - drawn, 0) / (n - drawn)
    return 1 - all_wrong


def maj_at_k(
    votes: Sequence[Sequence[Hashable]], correct: Sequence[Sequence[bool]]
) -> np.ndarray:
    """Whether each problem's most frequent answer is right, `[problems]`.

    Args:
      votes: per completion the class of its answer; None where it gave none, which
        is no vote. Completions of one class are all right or all wrong.
      correct: the verdicts, of the same shape.

    Returns:
      1 or 0 per problem; where k classes share the lead and j of them are right, j / k,
      what a fair draw among them gives; 0 where nobody voted.
    """
    scores = []
    for classes, verdicts in zip(votes, correct, strict=True):
        verdict_of = dict(zip(classes, verdicts, strict=True))
        verdict_of.pop(None, None)
        count = {answer: list(classes).count(answer) for answer in verdict_of}
        lead = max(count.values(), default=0)
        winners = [verdict_of[answer] for answer in count if count[answer] == lead]
        scores.append(np.mean(winners) if winners else 0.0)
    return np.array(scores, np.float64)


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion, for one verdict per problem."""
    interval = stats.binomtest(int(successes), int(trials)).proportion_ci(
        confidence, method="wilson"
    )
    return float(interval.low), float(interval.high)


def bootstrap_interval(
    scores: np.ndarray,
    *,
    confidence: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of the mean of `scores [problems]` over resampled problems.

    It has no width where all scores agree; see `mean_interval`.
    """
    scores = np.asarray(scores, np.float64)
    rng = np.random.default_rng(seed)
    means = [
        rng.choice(scores, size=len(scores), replace=True).mean()
        for _ in range(resamples)
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def mean_interval(scores: np.ndarray) -> Interval:
    """95% interval of the mean of `scores [problems]`, each in [0, 1].

    Wilson's where every score is 0 or 1, as in greedy evaluation: it stays honest when
    nothing, or everything, is solved. Else by bootstrap over problems.
    """
    scores = np.asarray(scores, np.float64)
    if np.isin(scores, (0, 1)).all():
        return wilson_interval(int(scores.sum()), len(scores))
    return bootstrap_interval(scores)


@dataclasses.dataclass(frozen=True, slots=True)
class McNemar:
    """Two systems on the same problems.

    Attributes:
      only_first: problems that the first alone solves.
      only_second: problems that the second alone solves.
      p_value: chance of a split at least as uneven if both were equally good.
    """

    only_first: int
    only_second: int
    p_value: float


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """McNemar's exact two-sided test on paired verdicts of equal length."""
    a, b = np.asarray(first, bool), np.asarray(second, bool)
    if a.shape != b.shape:
        raise ValueError(f"{a.size} verdicts cannot be paired with {b.size}")
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    split = only_a + only_b
    p = stats.binomtest(only_a, split, 0.5).pvalue if split else 1.0
    return McNemar(only_first=only_a, only_second=only_b, p_value=float(p))
