"""Draws that teach: which of the problems on offer are drawn, and how much of each.

The curriculum offers problems in its own order and proportions. Under "signal" each is
drawn with the chance

    max(explore, (teaches / most) ** power)

and passed over otherwise: `teaches` is the probability that its group comes out neither
all right nor all wrong, under the Beta distribution of its solve rate (`SolveRates`),
and `most` the largest one of the stage. A problem whose rate is `retire_at` or more is
retired: it has the chance `explore`. Where all problems teach alike, and before
anything is known, every problem is drawn, in the curriculum's order; under "uniform"
always.

What a policy changes is the mixture of problems, as a curriculum does. What a group
teaches of its problem stays as it was: see `rl.batches.parts` for groups in two parts.

Sources: GRESO (arXiv 2506.02177) passes over prompts whose groups taught nothing;
ScaleRL (arXiv 2510.13786) retires those that are solved nine times in ten.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from configs.schema import NotNegative, Positive, Range
from rl.batches.groups import informative
from rl.batches.parts import missed
from rl.batches.rates import Rate, SolveRates
from rl.problems.curriculum import Curriculum, Stage
from rl.types import Group, Problem
from rollout.seeds import generator

Policy = Literal["uniform", "signal"]
OpenShare = Annotated[float, Range(0, 1, open=True)]
# Of a round's seed, which the sampler has too.
_OFFERS = 1
_FADE = 0.95  # a round's weight in the going rate, with each that follows


@dataclasses.dataclass(frozen=True, slots=True)
class Draw:
    """A problem that is to be completed.

    Attributes:
      problem: what is asked.
      place: among the run's problems.
      chance: with which it was drawn, once on offer.
      rate: of its being solved, as estimated before.
    """

    problem: Problem
    place: int
    chance: float
    rate: Rate

    def state(self) -> dict[str, Any]:
        """JSON-able; for `Draws.restored`."""
        return {"place": self.place, "chance": self.chance, "rate": list(self.rate)}


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """What came of a draw.

    Attributes:
      draw: of which it came.
      group: of the completions that have a verdict, in the order of drawing.
      first: how many of these were drawn before anything was known of the group.
      asked: completions drawn.
    """

    draw: Draw
    group: Group
    first: int
    asked: int


class Draws:
    """The curriculum as a policy draws from it; `state()` is its whole memory.

    For each step, in order: `begin`; any number of `draw`, `ends`, `observe`; then
    `settle` and `metrics`.
    """

    def __init__(
        self,
        curriculum: Curriculum,
        problems: Sequence[Problem],
        *,
        policy: Policy,
        explore: OpenShare,
        power: NotNegative,
        retire_at: OpenShare,
        half_life: Positive,
    ):
        """
        Args:
          curriculum: offers the problems.
          problems: all that it may offer.
          policy, explore, power, retire_at: see the module's docstring.
          half_life: see `SolveRates`.
        """
        self._curriculum, self._policy = curriculum, policy
        self._explore, self._power, self._retire_at = explore, power, retire_at
        self._problems = problems
        self._places = {p.id: place for place, p in enumerate(problems)}
        self._levels = np.array([-1 if p.level is None else p.level for p in problems])
        self._rates = SolveRates(problems, half_life=half_life)
        # Of rounds, the last ones most: squared weights of what was kept, completions.
        self._squares, self._asked = 0.0, 0.0
        self._step, self._pool = 0, np.ones(len(problems), bool)
        self._counts: collections.Counter = collections.Counter()

    def begin(self, step: int) -> Stage:
        """The stage of `step`, which is the next to be sampled."""
        stage = self._curriculum.begin(step)
        self._step = step
        self._pool = np.ones(len(self._levels), bool)
        if stage.levels is not None:
            self._pool = np.isin(self._levels, list(stage.levels))
        self._counts = collections.Counter()
        return stage

    def draw(self, n: int, *, size: int, seed: int) -> list[Draw]:
        """`n` problems, whose groups are to be of `size` completions."""
        rates = self._rates.at(self._step)
        teaches = rates.mixed(size)
        chances = self._chances(rates, teaches)
        coins = generator(seed, _OFFERS)
        draws = []
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

    def restored(self, state: Mapping[str, Any]) -> Draw:
        """The draw of a `Draw.state()`, of the same problems."""
        place = state["place"]
        rate = Rate(*state["rate"])
        return Draw(self._problems[place], place, state["chance"], rate)

    def _chances(self, rates: Rate, teaches: np.ndarray) -> np.ndarray:
        if self._policy == "uniform":
            return np.ones(len(teaches))
        learning = rates.mean < self._retire_at
        worth = np.where(learning, teaches, 0.0)
        most = max(worth[self._pool].max(), 1e-12)
        chances = np.where(learning, (worth / most) ** self._power, 0.0)
        return np.clip(chances, self._explore, 1.0)

    def ends(self, draw: Draw, first: int, rest: int) -> tuple[bool, bool]:
        """Whether a group ends where its first part is all wrong, or all right.

        It ends where the rest is worth less, for each completion, than what is drawn
        otherwise. Settled before the group is drawn, on which `rl.batches.parts` rests.

        Args:
          draw: of the group.
          first: completions of the first part that have a verdict. Of fewer than two
            nothing is known: the group goes on.
          rest: completions that are still to be drawn.
        """
        if first < 2:
            return False, False
        right, wrong = draw.rate
        least = rest * self._squares / max(self._asked, 1.0)
        return (
            missed(Rate(right, wrong + first), first, rest) < least,
            missed(Rate(wrong, right + first), first, rest) < least,
        )

    def observe(self, drawn: Sequence[Drawn], *, size: int) -> None:
        """Takes in what came of a round, whose groups were to be of `size`."""
        count = self._counts
        taught = 0.0
        for d in drawn:
            self._rates.observe(
                d.draw.place,
                d.group.correct,
                first=d.first,
                chance=d.draw.chance,
                step=self._step,
            )
            count["ended"] += d.asked < size
            count["not_completed"] += size - d.asked
            if d.first < 2:
                continue
            # In parts of one size, what was expected of it and what was found.
            part = d.group.correct[: d.first]
            count["compared"] += 1
            count["expected"] += float(d.draw.rate.mixed(d.first))
            count["found"] += bool(part.any() and not part.all())
            taught += d.group.weight**2 * informative(d.group)
        self._squares = _FADE * self._squares + taught
        self._asked = _FADE * self._asked + sum(d.asked for d in drawn)

    def settle(
        self, *, accuracy: float | None, solve_all: float | None, updates: bool
    ) -> None:
        """See `Curriculum.observe`."""
        self._curriculum.observe(
            accuracy=accuracy, solve_all=solve_all, updates=updates
        )

    def metrics(self) -> dict[str, float]:
        """The curriculum's, and what was drawn of what it offered in this step.

        `draws/` offered, refused (passed over); refused_in_vain, groups of these that
        are expected to have taught; ended, groups after their first part, and
        not_completed, what that saved; retired and coverage, shares of the stage's
        problems that are retired, and that were ever drawn; expected and found, the
        share of first parts that were mixed.
        """
        count, rates = self._counts, self._rates.at(self._step)
        pool = self._pool
        told = {
            name: float(count[name])
            for name in ("offered", "refused", "refused_in_vain", "ended")
        } | {
            "completions_saved": float(count["not_completed"]),
            "retired": float((rates.mean[pool] >= self._retire_at).mean()),
            "coverage": float(self._rates.seen[pool].mean()),
        }
        if count["compared"]:
            for name in ("expected", "found"):
                told[name] = count[name] / count["compared"]
        named = {f"draws/{name}": value for name, value in told.items()}
        return self._curriculum.metrics() | named

    def deal_anew(self, attempt: int) -> None:
        """See `Curriculum.deal_anew`."""
        self._curriculum.deal_anew(attempt)

    def state(self) -> dict[str, Any]:
        """JSON-able; `restore` of it continues with the very next problem."""
        drawing = {
            "rates": self._rates.state(),
            "squares": self._squares,
            "asked": self._asked,
        }
        return self._curriculum.state() | {"draws": drawing}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`, or from that of a curriculum alone.

        Raises:
          ValueError: the state is of other stages, levels or problems.
        """
        self._curriculum.restore(state)
        if "draws" in state:
            drawing = state["draws"]
            self._rates.restore(drawing["rates"])
            self._squares, self._asked = drawing["squares"], drawing["asked"]
