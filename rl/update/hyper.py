"""Makes the scalars of each update; a stage's own replace the run's."""

from collections.abc import Callable

from configs.schema import Count, Positive, Share
from rl.problems.curriculum import Stage
from rl.types import Hyper, make_hyper


def make_hypers(
    stage: Stage,
    *,
    updates: int,
    mini_batches: int,
    ppo_epochs: Count,
    schedule: Callable[[int], float],
    learning_rate: Positive,
    eps_low: Share,
    eps_high: Positive,
    temperature: Positive,
) -> list[Hyper]:
    """Return the scalars of each update of a step.

    Args:
      stage: the stage of the step.
      updates: done before this step.
      mini_batches: of the step, each used `ppo_epochs` times.
      schedule: learning rate by the number of updates done.
      learning_rate: the schedule's peak, which a stage's own rate scales.
      eps_low, eps_high, temperature: see `Hyper`.
    """
    scale = (stage.learning_rate or learning_rate) / learning_rate
    return [
        make_hyper(
            learning_rate=scale * schedule(updates + i),
            eps_low=eps_low,
            eps_high=stage.eps_high or eps_high,
            temperature=stage.temperature or temperature,
            first_update=i == 0,
        )
        for i in range(mini_batches * ppo_epochs)
    ]
