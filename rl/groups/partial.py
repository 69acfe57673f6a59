"""Groups that one step starts and a later one may complete."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from rl.groups.draws import Draw
from rl.groups.state import restore_completion, to_json
from rollout.types import NOT_BEGUN, Completion, SamplingParams


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PartialGroup:
    """A group some of whose completions are unfinished.

    Attributes:
      draw: its problem.
      created_step: the step in which its first token was sampled; before that, the one
        in which it was last given to the sampler.
      completions: G of them, finished or not.
    """

    draw: Draw
    created_step: int
    completions: tuple[Completion, ...]

    @property
    def tokens(self) -> int:
        return sum(len(c.token_ids) for c in self.completions)

    @property
    def missing(self) -> int:
        """Return the number of unfinished completions."""
        return sum(c.unfinished for c in self.completions)

    def fits(self, params: SamplingParams) -> bool:
        """Return whether `params`, which a stage may have changed, can complete it."""
        return len(self.completions) == params.n and all(
            len(c.token_ids) < params.max_tokens or not c.unfinished
            for c in self.completions
        )

    def state(self) -> dict[str, Any]:
        """Return what `restored` reads, as JSON."""
        return {
            "draw": self.draw.state(),
            "created_step": self.created_step,
            "completions": [
                to_json(c) if len(c.token_ids) else None for c in self.completions
            ],
        }

    @classmethod
    def restored(
        cls, state: Mapping[str, Any], draw: Callable[[Mapping[str, Any]], Draw]
    ) -> "PartialGroup":
        """Return the group of a `state()`; `draw` restores its draw."""
        completions = tuple(
            restore_completion(c) if c else NOT_BEGUN for c in state["completions"]
        )
        return cls(draw(state["draw"]), state["created_step"], completions)
