"""Signal sampling: which of the problems that the curriculum offers are sampled.

Under "signal" a problem is drawn with the chance

    max(explore, teaches / most)

and skipped otherwise. `teaches` is the probability that its group has right and wrong
completions, under the Beta distribution of its solve rate (`SolveRates`), and `most`
the largest one of the stage. A problem whose rate is 0.9 or more has the chance
`explore`. Before anything is known, and under "uniform", every problem is drawn.

Sources: GRESO (arXiv 2506.02177) passes over prompts whose groups taught nothing;
ScaleRL (arXiv 2510.13786) retires those that are solved nine times in ten.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.base import Sampling
from rl.groups.rates import Rate, SolveRates
from rl.problems.curriculum import Counts, Curriculum, Stage
from rl.types import Group, Problem
from rollout.seeds import generator

_COUNTED = (
    "offered", "refused", "refused_in_vain", "compared", "expected", "found"
)  # fmt: skip
_RETIRE_AT = 0.9  # solve rate from which a problem is only explored
# Of a round's seed, which the sampler has too.
_OFFERS = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Draw:
    """A problem to sample completions of.

    Attributes:
      problem: the problem.
      place: its index among the run's problems.
      chance: with which it was drawn once offered.
      rate: its solve rate as estimated before.
    """

    problem: Problem
    place: int
    chance: float
    rate: Rate


@dataclasses.dataclass(frozen=True, slots=True)
class SampledGroup:
    """The group of a draw.

    Attributes:
      draw: the draw.
      group: the completions that have a verdict.
      asked: completions sampled.
    """

    draw: Draw
    group: Group
    asked: int


class Draws:
    """Draws problems from the curriculum.

    Call for each step, in order: `begin`; any number of `draw` and `observe`; then
    `end_step` and `metrics`.
    """

    def __init__(
        self,
        curriculum: Curriculum,
        problems: Sequence[Problem],
        settings: Sampling,
    ):
        """
        Args:
          curriculum: offers the problems.
          problems: all that it may offer.
          settings: see the module's docstring and `SolveRates`.
        """
        self._curriculum, self._settings = curriculum, settings
        self._places = {p.id: place for place, p in enumerate(problems)}
        self._levels = np.array([-1 if p.level is None else p.level for p in problems])
        self._rates = SolveRates(problems, half_life=settings.half_life)
        self._step, self._pool = 0, np.ones(len(problems), bool)
        self._counts = dict.fromkeys(_COUNTED, 0.0)

    def begin(self, step: int) -> Stage:
        """Return the stage of `step`, the next to be sampled."""
        stage = self._curriculum.begin(step)
        self._step = step
        self._pool = np.ones(len(self._levels), bool)
        if stage.levels is not None:
            self._pool = np.isin(self._levels, list(stage.levels))
        self._counts = dict.fromkeys(_COUNTED, 0.0)
        return stage

    def draw(self, n: int, *, size: int, seed: int) -> list[Draw]:
        """Return `n` problems, whose groups will have `size` completions."""
        rates = self._rates.at(self._step)
        teaches = rates.mixed(size)
        chances = self._chances(rates, teaches)
        coins = generator(seed, _OFFERS)
        draws: list[Draw] = []
        while len(draws) < n:
            (problem,) = self._curriculum.draw(1)
            place = self._places[problem.id]
            self._counts["offered"] += 1
            if coins.random() < chances[place]:
                rate = Rate(float(rates.right[place]), float(rates.wrong[place]))
                draws.append(Draw(problem, place, float(chances[place]), rate))
            else:
                self._counts["refused"] += 1
                self._counts["refused_in_vain"] += teaches[place]
        return draws

    def _chances(self, rates: Rate, teaches: np.ndarray) -> np.ndarray:
        if self._settings.policy == "uniform":
            return np.ones(len(teaches))
        worth = np.where(rates.mean < _RETIRE_AT, teaches, 0.0)
        most = max(worth[self._pool].max(), 1e-12)
        return np.clip(worth / most, self._settings.explore, 1.0)

    def observe(self, drawn: Sequence[SampledGroup]) -> None:
        """Take in the groups of a round."""
        count = self._counts
        for d in drawn:
            correct = d.group.correct
            self._rates.observe(
                d.draw.place, correct, chance=d.draw.chance, step=self._step
            )
            if len(correct) >= 2:
                count["compared"] += 1
                count["expected"] += float(d.draw.rate.mixed(len(correct)))
                count["found"] += bool(correct.any() and not correct.all())

    def end_step(self, counts: Counts, *, updates: bool) -> None:
        """See `Curriculum.observe`."""
        self._curriculum.observe(counts, updates=updates)

    def metrics(self) -> dict[str, float]:
        """Return the curriculum's metrics and those of this step's draws.

        `draws/` offered, refused (skipped); refused_in_vain, skipped groups expected to
        be informative; retired and coverage, shares of the stage's problems that are
        retired, and that were ever drawn; expected and found, shares of informative
        groups.
        """
        count, rates = self._counts, self._rates.at(self._step)
        pool = self._pool
        told = {
            name: float(count[name])
            for name in ("offered", "refused", "refused_in_vain")
        } | {
            "retired": float((rates.mean[pool] >= _RETIRE_AT).mean()),
            "coverage": float(self._rates.seen[pool].mean()),
        }
        if count["compared"]:
            for name in ("expected", "found"):
                told[name] = count[name] / count["compared"]
        named = {f"draws/{name}": value for name, value in told.items()}
        return self._curriculum.metrics() | named

    def state(self) -> dict[str, Any]:
        """Return what `restore` continues from, as JSON."""
        return self._curriculum.state() | {"rates": self._rates.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`.

        Raises:
          ValueError: the state is of other stages, levels or problems.
        """
        self._curriculum.restore(state)
        self._rates.restore(state["rates"])
