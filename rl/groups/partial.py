"""Groups that one step begins and a later one may complete."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl.groups.draws import Draw
from rl.groups.group_state import completion_state, restore_completion
from rollout.types import NOT_BEGUN, Completion, SamplingParams


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PartialGroup:
    """A draw, and what is there of its group's completions.

    Attributes:
      draw: of the problem.
      created_step: the step in which its first token was sampled; until there is one,
        that in which it was last offered to the sampler.
      completions: all of the group, in the order of drawing.
    """

    draw: Draw
    created_step: int
    completions: Sequence[Completion]

    @property
    def tokens(self) -> int:
        return sum(len(c.token_ids) for c in self.completions)

    @property
    def missing(self) -> int:
        """Completions that have not ended."""
        return sum(c.unfinished for c in self.completions)

    def fits(self, params: SamplingParams) -> bool:
        """Whether it can go on under `params`, which a stage may have changed."""
        return len(self.completions) == params.n and all(
            len(c.token_ids) < params.max_tokens or not c.unfinished
            for c in self.completions
        )

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "draw": self.draw.state(),
            "created_step": self.created_step,
            "completions": [
                completion_state(c) if len(c.token_ids) else None
                for c in self.completions
            ],
        }

    @classmethod
    def restored(
        cls, state: Mapping[str, Any], draw: Callable[[Mapping[str, Any]], Draw]
    ) -> "PartialGroup":
        """Of `state()`; `draw` restores its draw."""
        completions = [
            restore_completion(c) if c else NOT_BEGUN for c in state["completions"]
        ]
        return cls(draw(state["draw"]), state["created_step"], completions)
