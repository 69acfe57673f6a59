"""Selects the problems of a step from those that the curriculum offers.

The sampling policy "uniform" draws every offered problem. The policy "signal" draws an
offered problem with the probability `max(explore, teaches / most)`. `teaches` is the
probability that a group of the problem has both correct and wrong completions. It is
computed from the Beta distribution of the problem's solve rate (`SolveRates`). `most`
is the largest `teaches` among the stage's problems that are not retired. A retired
problem has an estimated solve rate of 0.9 or more; its probability is `explore`.

Sources: GRESO (arXiv 2506.02177) skips prompts whose recent groups had no signal;
ScaleRL (arXiv 2510.13786) retires prompts with a solve rate of 0.9.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.base import Sampling, Stage
from rl.groups.solve_rates import SolveRate, SolveRates
from rl.problems.curriculum import Counts, Curriculum
from rl.types import Group, Problem
from rollout.seeds import generator

_RETIRE_AT = 0.9  # minimum solve rate of retired problems
_OFFERS = 1  # makes the random numbers differ from the sampler's of the same seed


@dataclasses.dataclass(frozen=True, slots=True)
class Draw:
    """Holds a problem that was drawn for sampling."""

    problem: Problem
    index: int  # of the problem, in the run's problems
    chance: float  # probability with which the offered problem was drawn
    solve_rate: SolveRate  # estimate of the solve rate at the time of the draw


class Draws:
    """Draws problems that the curriculum offers; `problems` are those of the run.

    In each step, call `begin`, then `draw` and `observe` any number of times, then
    `end_step` and `metrics`.
    """

    def __init__(
        self, curriculum: Curriculum, problems: Sequence[Problem], settings: Sampling
    ):
        self._curriculum, self._settings = curriculum, settings
        self._indices = {p.id: index for index, p in enumerate(problems)}
        self._levels = np.array([-1 if p.level is None else p.level for p in problems])
        self._solve_rates = SolveRates(problems, half_life=settings.half_life)

    def begin(self, step: int) -> Stage:
        """Resets the counts for a new step, and returns the step's curriculum stage."""
        stage = self._curriculum.begin(step)
        self._step = step
        self._pool = np.ones(len(self._levels), bool)
        if stage.levels is not None:
            self._pool = np.isin(self._levels, list(stage.levels))
        self._counts: dict[str, float] = collections.defaultdict(float)
        return stage

    def draw(self, n: int, *, size: int, seed: int) -> list[Draw]:
        """Draws `n` problems for groups of `size` completions.

        `seed` is for the random choice of the offered problems that are skipped.
        """
        rates = self._solve_rates.at(self._step)
        teaches = rates.mixed(size)
        chances = np.ones(len(teaches))
        if self._settings.policy == "signal":
            worth = np.where(rates.mean < _RETIRE_AT, teaches, 0.0)
            most = max(worth[self._pool].max(), 1e-12)
            chances = np.clip(worth / most, self._settings.explore, 1.0)
        coins = generator(seed, _OFFERS)
        draws: list[Draw] = []
        while len(draws) < n:
            problem = self._curriculum.draw()
            index = self._indices[problem.id]
            self._counts["offered"] += 1
            if coins.random() < chances[index]:
                rate = SolveRate(float(rates.right[index]), float(rates.wrong[index]))
                draws.append(Draw(problem, index, float(chances[index]), rate))
            else:
                self._counts["refused"] += 1
                self._counts["refused_in_vain"] += teaches[index]
        return draws

    def observe(self, draw: Draw, group: Group) -> None:
        """Updates solve rates and counts with the judged group of a draw."""
        count, correct = self._counts, group.correct
        # After a resume with other data, an older draw may be of a missing problem.
        if (index := self._indices.get(draw.problem.id)) is not None:
            self._solve_rates.observe(
                index, correct, chance=draw.chance, step=self._step
            )
        if len(correct) >= 2:
            count["compared"] += 1
            count["expected"] += float(draw.solve_rate.mixed(len(correct)))
            count["found"] += bool(correct.any() and not correct.all())

    def end_step(self, counts: Counts, *, updates: bool) -> None:
        self._curriculum.observe(counts, updates=updates)

    def metrics(self) -> dict[str, float]:
        """Returns metrics of the curriculum and the draws; see docs/sampling.md."""
        count, pool = self._counts, self._pool
        values = {k: float(count[k]) for k in ("offered", "refused", "refused_in_vain")}
        solved = self._solve_rates.at(self._step).mean[pool] >= _RETIRE_AT
        values["retired"] = float(solved.mean())
        values["coverage"] = float(self._solve_rates.seen[pool].mean())
        if count["compared"]:
            for name in ("expected", "found"):
                values[name] = count[name] / count["compared"]
        named = {f"draws/{name}": value for name, value in values.items()}
        return self._curriculum.metrics() | named

    def state(self) -> dict[str, Any]:
        """Returns the state of curriculum and solve rates as JSON, for `restore`."""
        return self._curriculum.state() | {"rates": self._solve_rates.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a `state()`; raises ValueError if it does not fit the run."""
        self._curriculum.restore(state)
        self._solve_rates.restore(state["rates"])
