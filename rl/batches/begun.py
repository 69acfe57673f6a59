"""Groups that a step begins and another may end."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl.batches.draws import Draw
from rl.batches.group_state import completion_state, restore_completion
from rollout.types import NOT_BEGUN, Completion, SamplingParams


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """A draw, and what is there of its group's completions.

    Attributes:
      draw: of the problem.
      born: the step in which its first token was drawn; until there is one, that in
        which it was last offered to the sampler.
      completions: all of the group, in the order of drawing.
    """

    draw: Draw
    born: int
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
            "born": self.born,
            "completions": [
                completion_state(c) if len(c.token_ids) else None
                for c in self.completions
            ],
        }

    @classmethod
    def restored(
        cls, state: Mapping[str, Any], draw: Callable[[Mapping[str, Any]], Draw]
    ) -> "Begun":
        """Of `state()`; `draw` restores its draw."""
        completions = [
            restore_completion(c) if c else NOT_BEGUN for c in state["completions"]
        ]
        return cls(draw(state["draw"]), state["born"], completions)
