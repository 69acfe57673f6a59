"""The result of judging one completion."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from rl.problems.types import Problem
from rl.verifier import Verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The result of judging one completion."""

    reward: float  # finite; NaN, if it could not be judged, leaves it out of training
    verdict: Verdict  # whether it is correct, and what decided
    # Of the reward, by name, for metrics and samples.
    components: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, verdict: Verdict) -> "Score":
        """Return +1 for a correct answer, -1 for another, NaN without a verdict."""
        worth = {True: 1.0, False: -1.0, None: math.nan}
        return cls(reward=worth[verdict.correct], verdict=verdict)


Reward = Callable[[Sequence[Sequence[str]], Sequence[Problem]], list[list[Score]]]
"""Groups of texts, and the problem of each group, to a score of each text."""
