"""Estimates the current solve rate of each problem.

The estimate is a Beta distribution. Its parameters are those of a prior, plus the
numbers of correct and wrong completions of the problem. In these numbers, the weight of
a completion halves every `half_life` steps. The prior is fitted to the mean and the
variance of the solve rate in recent groups of the problem's level. Groups of other
levels have a small weight.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from rl.groups.state import from_json, to_json
from rl.types import Problem

_MEMORY = 512  # groups over which the moments of a level decay by a factor e
_WEIGHT = 4.0  # weight of the moments of all levels in each level, in groups
_UNIFORM = np.array([1 / 2, 1 / 3])  # means of p and p squared for a uniform p
_STRENGTH = 0.2, 32.0  # smallest and largest weight of a prior, in completions


class SolveRate(NamedTuple):
    """Holds the Beta parameters of a solve rate, or of several rates as arrays."""

    right: Any  # above 0; grows with correct completions
    wrong: Any  # above 0; grows with wrong completions

    @property
    def mean(self) -> Any:
        return self.right / (self.right + self.wrong)

    def mixed(self, n: int) -> Any:
        """Returns the probability that `n` completions differ in correctness."""
        return 1 - _row(self.right, self.wrong, n) - _row(self.wrong, self.right, n)


def _row(this, other, n: int):
    """Returns the mean of p**n, where p has the distribution Beta(this, other)."""
    chance = 1.0  # becomes B(this + n, other) / B(this, other)
    for i in range(n):
        chance = chance * (this + i) / (this + other + i)
    return chance


class SolveRates:
    """Maintains an estimate of the solve rate of each of a run's P problems."""

    def __init__(self, problems: Sequence[Problem], *, half_life: float):
        self._levels = sorted({p.level for p in problems}, key=str)
        self._level = np.array([self._levels.index(p.level) for p in problems])
        self._hashes = np.array([_hash(p) for p in problems], np.int64)
        self._half_life = half_life
        # By problem: counts as of the step in `_last`, which is -1 before any verdict.
        self._right = np.zeros(len(problems), np.float32)
        self._wrong = np.zeros(len(problems), np.float32)
        self._last = np.full(len(problems), -1, np.int32)
        # By level: number of groups, and sums of p and p squared over groups.
        self._groups = np.zeros(len(self._levels))
        self._moments = np.zeros((len(self._levels), 2))

    @property
    def seen(self) -> np.ndarray:
        """Returns a mask `[P]`: whether each problem has at least one verdict."""
        return self._last >= 0

    def at(self, step: int) -> SolveRate:
        """Returns the Beta parameters of the problems at `step`, as arrays `[P]`."""
        prior = self._priors()
        kept = self._kept(step, slice(None))
        return SolveRate(
            prior.right[self._level] + kept * self._right,
            prior.wrong[self._level] + kept * self._wrong,
        )

    def _kept(self, step: int, of) -> np.ndarray:
        age = np.maximum(step - self._last[of], 0)
        return np.exp2(-age / self._half_life)

    def _priors(self) -> SolveRate:
        """Fits the prior of each level by the method of moments."""
        total = self._groups.sum()
        of_all = (self._moments.sum(0) + _WEIGHT * _UNIFORM) / (total + _WEIGHT)
        moments = self._moments + _WEIGHT * of_all
        mean, square = (moments / (self._groups[:, None] + _WEIGHT)).T
        variance = np.maximum(square - mean**2, 1e-9)
        strength = np.clip((mean - square) / variance, *_STRENGTH)
        return SolveRate(mean * strength, (1 - mean) * strength)

    def observe(
        self, problem: int, correct: Int[np.ndarray, " G"], *, chance: float, step: int
    ) -> None:
        """Adds the verdicts of one group; `problem` is the index of its problem.

        `chance` is the probability with which the problem was drawn. In the prior of
        its level, the group has the weight 1 / chance, or 0 if it has one verdict.
        """
        n, right = len(correct), int(np.sum(correct))
        if not n:
            return
        kept = float(self._kept(step, problem)) if self._last[problem] >= 0 else 0.0
        self._right[problem] = kept * self._right[problem] + right
        self._wrong[problem] = kept * self._wrong[problem] + (n - right)
        self._last[problem] = step
        if n < 2:
            return
        level = self._level[problem]
        # Unbiased estimates of p and p squared.
        seen = np.array([right / n, right * (right - 1) / (n * (n - 1))])
        fade = 1 - 1 / _MEMORY
        self._groups[level] = fade * self._groups[level] + 1 / chance
        self._moments[level] = fade * self._moments[level] + seen / chance

    def state(self) -> dict[str, Any]:
        """Returns the state as JSON, about 27 bytes per problem, for `restore`."""
        by_problem = {"right": self._right, "wrong": self._wrong, "last": self._last}
        return to_json(by_problem | {"hashes": self._hashes}) | {
            "levels": self._levels,
            "groups": self._groups.tolist(),
            "moments": self._moments.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a `state()`; other problems and levels begin without verdicts."""
        saved = from_json(Any, state)
        own, others = self._hashes, saved["hashes"]
        _, here, there = np.intersect1d(own, others, return_indices=True)
        self._right[here] = saved["right"][there]
        self._wrong[here] = saved["wrong"][there]
        self._last[here] = saved["last"][there]
        for i, level in enumerate(saved["levels"]):
            if level in self._levels:
                of = self._levels.index(level)
                self._groups[of] = saved["groups"][i]
                self._moments[of] = saved["moments"][i]


def _hash(problem: Problem) -> int:
    data = hashlib.sha256(f"{problem.id}\n{problem.problem}".encode()).digest()
    return int.from_bytes(data[:8], signed=True)
