"""Defines `Score`, the result of judging one completion, and the type of rewards."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from rl.problems.types import Problem
from rl.verifier import Verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Holds the result of judging one completion."""

    reward: float  # finite; or NaN without a verdict, which excludes it from training
    verdict: Verdict  # correctness, and the rule that decided it
    # Parts of the reward by name, for metrics and sample files.
    components: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, verdict: Verdict) -> "Score":
        """Returns the score of a verdict: +1 if correct, -1 if wrong, NaN if None."""
        worth = {True: 1.0, False: -1.0, None: math.nan}
        return cls(reward=worth[verdict.correct], verdict=verdict)


Reward = Callable[[Sequence[Sequence[str]], Sequence[Problem]], list[list[Score]]]
"""Function from groups of texts and the problem of each group to a score per text."""
