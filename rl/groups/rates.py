"""Estimates how often each problem is solved now.

A problem's rate has a Beta distribution. Its prior is fitted by moments to the recent
groups of its level, whose own prior is fitted to all levels. Right and wrong
completions of the problem add to it, and count half after every `half_life` steps.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from rl.groups.state import from_json, to_json
from rl.types import Problem

_MEMORY = 512  # groups that a level's prior remembers
_WEIGHT = 4.0  # groups that the prior of a level's prior is worth
_UNIFORM = np.array([1 / 2, 1 / 3])  # means of p and p squared of a uniform p
_STRENGTH = 0.2, 32.0  # completions that a prior may be worth


class Rate(NamedTuple):
    """A Beta distribution of a problem's rate, or of each problem's.

    Attributes:
      right, wrong: its two parameters, above 0; numbers, or arrays `[P]`.
    """

    right: Any
    wrong: Any

    @property
    def mean(self) -> Any:
        return self.right / (self.right + self.wrong)

    def mixed(self, n: int) -> Any:
        """Return the chance that `n` completions have both outcomes."""
        return 1 - _row(self.right, self.wrong, n) - _row(self.wrong, self.right, n)


def _row(this, other, n: int):
    """Return B(this + n, other) / B(this, other)."""
    chance = 1.0
    for i in range(n):
        chance = chance * (this + i) / (this + other + i)
    return chance


class SolveRates:
    """An estimate for each of a run's problems."""

    def __init__(self, problems: Sequence[Problem], *, half_life: float):
        """
        Args:
          problems: of the run; they are named by their place.
          half_life: steps after which a problem's completions count half.
        """
        levels = sorted({p.level for p in problems}, key=str)
        self._level = np.array([levels.index(p.level) for p in problems])
        self._half_life = half_life
        # By problem, as of the step at which it was last seen; -1 is never.
        self._right = np.zeros(len(problems), np.float32)
        self._wrong = np.zeros(len(problems), np.float32)
        self._last = np.full(len(problems), -1, np.int32)
        # By level: groups, and sums over them of p and p squared.
        self._groups = np.zeros(len(levels))
        self._moments = np.zeros((len(levels), 2))

    @property
    def seen(self) -> np.ndarray:
        """Return bool `[P]`: problems that have had a completion with a verdict."""
        return self._last >= 0

    def at(self, step: int) -> Rate:
        """Return the rates `[P]` of all problems at a step."""
        prior = self._priors()
        kept = self._kept(step, slice(None))
        return Rate(
            prior.right[self._level] + kept * self._right,
            prior.wrong[self._level] + kept * self._wrong,
        )

    def _kept(self, step: int, of) -> np.ndarray:
        age = np.maximum(step - self._last[of], 0)
        return np.exp2(-age / self._half_life)

    def _priors(self) -> Rate:
        """Return the prior of each level, `[levels]`, by the method of moments."""
        total = self._groups.sum()
        of_all = (self._moments.sum(0) + _WEIGHT * _UNIFORM) / (total + _WEIGHT)
        moments = self._moments + _WEIGHT * of_all
        mean, square = (moments / (self._groups[:, None] + _WEIGHT)).T
        variance = np.maximum(square - mean**2, 1e-9)
        strength = np.clip((mean - square) / variance, *_STRENGTH)
        return Rate(mean * strength, (1 - mean) * strength)

    def observe(
        self,
        problem: int,
        correct: Int[np.ndarray, " G"],
        *,
        chance: float,
        step: int,
    ) -> None:
        """Take in a group.

        Args:
          problem: its place.
          correct: verdicts of its completions that have one.
          chance: with which the problem was drawn; it counts 1 / chance in its level.
          step: of the group.
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
        # Unbiased for p and for p squared.
        seen = np.array([right / n, right * (right - 1) / (n * (n - 1))])
        fade = 1 - 1 / _MEMORY
        self._groups[level] = fade * self._groups[level] + 1 / chance
        self._moments[level] = fade * self._moments[level] + seen / chance

    def state(self) -> dict[str, Any]:
        """Return what `restore` continues from, as JSON: 16 bytes a problem."""
        return {
            "right": to_json(self._right),
            "wrong": to_json(self._wrong),
            "last": to_json(self._last),
            "groups": self._groups.tolist(),
            "moments": self._moments.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`.

        Raises:
          ValueError: the state is of other problems.
        """
        right, wrong, last = (
            from_json(np.ndarray, state[name]) for name in ("right", "wrong", "last")
        )
        if len(last) != len(self._last) or len(state["groups"]) != len(self._groups):
            raise ValueError("the checkpoint was written with other problems")
        self._right, self._wrong, self._last = right, wrong, last
        self._groups = np.array(state["groups"])
        self._moments = np.array(state["moments"])
