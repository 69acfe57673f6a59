"""Draws the problems of each step: stages, the order of problems, and skipping.

A stage mixes difficulty levels in given proportions and may override settings. It ends
after its number of steps, or earlier by its advance rule. The rule compares a metric,
pooled over a window of steps, with a threshold. Steps without an update do not count.

The problems of a level are offered in passes. A pass offers every problem once, in an
order that depends on the seed, the level and the number of the pass.

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
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from configs.base import Sampling, Stage
from configs.schema import Index
from rl.groups.solve_rates import SolveRates
from rl.types import Group, Problem
from rollout.seeds import generator

_RETIRE_AT = 0.9  # minimum solve rate of retired problems
_OFFERS = 1  # makes the random numbers differ from the sampler's of the same seed

# Numerator and denominator of each metric, such as correct and all completions.
Counts = Mapping[Literal["accuracy", "solve_all"], tuple[float, float]]


class NoProblem(ValueError):
    """Signals that a stage names a level that no problem has."""


@dataclasses.dataclass(frozen=True, slots=True)
class Draw:
    """Holds a problem that was drawn for sampling."""

    problem: Problem
    index: int  # of the problem, in the run's problems
    chance: float  # probability with which the offered problem was drawn
    teaches: float  # estimated probability that completions differ in correctness


class Curriculum:
    """Draws the problems of a run stage by stage; the last stage never ends.

    In each step, call `begin`, then `draw` and `observe` any number of times, then
    `end_step` and `metrics`. `on_message` receives a message when a later stage or pass
    begins. Raises ValueError if a stage before the last cannot end, or a level has no
    problems.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        problems: Sequence[Problem],
        *,
        seed: Index,
        sampling: Sampling,
        on_message: Callable[[str], None] = print,
    ):
        self._stages, self._problems = tuple(stages), problems
        self._seed, self._sampling, self._on_message = seed, sampling, on_message
        self._indices = {p.id: index for index, p in enumerate(problems)}
        self._solve_rates = SolveRates(problems, half_life=sampling.half_life)
        # By level: indices of its problems, and the order of its current pass.
        self._of_level: dict[int | None, np.ndarray] = {}
        self._orders: dict[int | None, np.ndarray] = {}
        for i, stage in enumerate(stages):
            if i < len(stages) - 1 and stage.steps is None and stage.advance is None:
                raise ValueError(
                    f"[{i}]: never ends; set steps or advance, or make it the last"
                    " stage"
                )
            for level in _levels(stage):
                chosen = [level is None or p.level == level for p in problems]
                if not any(chosen):
                    raise NoProblem(f"[{i}].levels: no problem has level {level}")
                self._of_level[level] = np.flatnonzero(chosen)
        self._totals = dict.fromkeys(self._of_level, 0)  # problems offered by level
        self._stage, self._steps = 0, 0
        self._window: list[dict[str, list[float]]] = []
        # Problems offered of each level in this stage.
        self._offered: collections.Counter = collections.Counter()

    def begin(self, step: int) -> Stage:
        """Returns the stage of a step: the next one if the current stage has ended."""
        if self._ends():
            self._stage, self._steps = self._stage + 1, 0
            self._window, self._offered = [], collections.Counter()
            name = self._stages[self._stage].name
            self._on_message(f"curriculum: step {step + 1} begins stage {name!r}")
        stage = self._stages[self._stage]
        self._step = step
        self._pool = np.concatenate([self._of_level[k] for k in _levels(stage)])
        self._counts: dict[str, float] = collections.defaultdict(float)
        return stage

    def _ends(self) -> bool:
        stage = self._stages[self._stage]
        if self._stage == len(self._stages) - 1:
            return False
        if stage.steps is not None and self._steps >= stage.steps:
            return True
        if stage.advance is None or len(self._window) < stage.advance.window:
            return False
        window = self._window[-stage.advance.window :]
        counts = [step[stage.advance.metric] for step in window]
        counted, out_of = map(sum, zip(*counts, strict=True))
        return counted / out_of >= stage.advance.at_least

    def draw(self, n: int, *, size: int, seed: int) -> list[Draw]:
        """Draws `n` problems for groups of `size` completions.

        `seed` is for the random choice of the offered problems that are skipped.
        """
        rates = self._solve_rates.at(self._step)
        teaches = rates.mixed(size)
        chances = np.ones(len(teaches))
        if self._sampling.policy == "signal":
            worth = np.where(rates.mean < _RETIRE_AT, teaches, 0.0)
            most = max(worth[self._pool].max(), 1e-12)
            chances = np.clip(worth / most, self._sampling.explore, 1.0)
        coins = generator(seed, _OFFERS)
        draws: list[Draw] = []
        while len(draws) < n:
            index = self._offer()
            self._counts["offered"] += 1
            if coins.random() < chances[index]:
                chance, expected = float(chances[index]), float(teaches[index])
                draws.append(Draw(self._problems[index], index, chance, expected))
            else:
                self._counts["refused"] += 1
                self._counts["refused_in_vain"] += teaches[index]
        return draws

    def _offer(self) -> int:
        """Returns the next problem's index; keeps the proportions of the levels."""
        stage = self._stages[self._stage]
        shares = dict.fromkeys(_levels(stage), 1.0) | dict(stage.levels or {})
        total, count = sum(shares.values()), self._offered.total() + 1
        behind = {k: shares[k] / total * count - self._offered[k] for k in shares}
        level = max(behind, key=lambda k: behind[k])
        indices = self._of_level[level]
        passes, position = divmod(self._totals[level], len(indices))
        if position == 0 or level not in self._orders:
            own = () if level is None else (level,)
            random = generator(self._seed, *own, passes)
            self._orders[level] = random.permutation(len(indices))
        if position == 0 and passes:
            of = "the problems" if level is None else f"level {level}"
            self._on_message(f"curriculum: {of}: pass {passes + 1} begins")
        self._offered[level] += 1
        self._totals[level] += 1
        return int(indices[self._orders[level][position]])

    def observe(self, draw: Draw, group: Group) -> None:
        """Updates solve rates and counts with the judged group of a draw."""
        count, correct, step = self._counts, group.correct, self._step
        # After a resume with other data, an older draw may be of a missing problem.
        if (index := self._indices.get(draw.problem.id)) is not None:
            self._solve_rates.observe(index, correct, chance=draw.chance, step=step)
        if len(correct) >= 2:
            count["compared"] += 1
            count["expected"] += draw.teaches
            count["found"] += bool(correct.any() and not correct.all())

    def end_step(self, counts: Counts, *, updates: bool) -> None:
        """Records the counts of a step; ignores steps that do not update the policy.

        If a denominator in `counts` is 0, the advance rule ignores the step.
        """
        if not updates:
            return
        self._steps += 1
        if all(out_of > 0 for _, out_of in counts.values()):
            self._window.append({str(k): [*map(float, v)] for k, v in counts.items()})
            longest = self._stages[self._stage].advance
            self._window = self._window[-(longest.window if longest else 1) :]

    def metrics(self) -> dict[str, float]:
        """Returns the metrics `curriculum/*` and `draws/*`; see docs/sampling.md."""
        count, pool = self._counts, self._pool
        values = {k: float(count[k]) for k in ("offered", "refused", "refused_in_vain")}
        solved = self._solve_rates.at(self._step).mean[pool] >= _RETIRE_AT
        values["retired"] = float(solved.mean())
        values["coverage"] = float(self._solve_rates.seen[pool].mean())
        if count["compared"]:
            for name in ("expected", "found"):
                values[name] = count[name] / count["compared"]
        metrics = {"curriculum/stage": self._stage + 1.0}
        for level, total in self._totals.items():
            name = f"curriculum/passes{'' if level is None else f'_{level}'}"
            metrics[name] = float(max(total - 1, 0) // len(self._of_level[level]))
        return metrics | {f"draws/{name}": value for name, value in values.items()}

    def state(self) -> dict[str, Any]:
        """Returns stage, positions and solve rates as JSON, for `restore`."""
        offered = sorted(self._offered.items(), key=str)
        return {
            "stage": self._stage,
            "steps": self._steps,
            "window": [dict(counts) for counts in self._window],
            "drawn": [[level, n] for level, n in offered],
            "totals": [[level, n] for level, n in self._totals.items()],
            "rates": self._solve_rates.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a `state()`; raises ValueError if it does not fit the stages."""
        totals = dict(state.get("totals", ()))
        stages = len(self._stages)
        if totals.keys() != self._totals.keys() or state["stage"] >= stages:
            raise ValueError(
                "the checkpoint was written with other stages or levels, or by another"
                " version; resume with the same config.curriculum, config.data and code"
            )
        self._stage, self._steps = state["stage"], state["steps"]
        self._window = [dict(counts) for counts in state["window"]]
        self._offered = collections.Counter(dict(state["drawn"]))
        self._totals, self._orders = totals, {}
        self._solve_rates.restore(state["rates"])


def _levels(stage: Stage) -> tuple[int | None, ...]:
    return (None,) if stage.levels is None else tuple(stage.levels)


def fill_gaps(
    stages: Sequence[Stage], problems: Sequence[Problem]
) -> tuple[tuple[Stage, ...], list[str]]:
    """Replaces levels without problems by the nearest level that has problems.

    Of two levels that are equally near, the lower one is used. Levels may be texts, as
    in a config; the returned stages have numbers. Also returns a message for each
    replaced level. Raises ValueError if the levels of a stage are not valid.
    """
    there = sorted({p.level for p in problems if p.level is not None})
    filled, messages = [], []
    for i, stage in enumerate(stages):
        levels: Any = stage.levels
        if levels is not None and not (
            isinstance(levels, Mapping)
            and levels
            and all(str(level).isdigit() for level in levels)
            and all(type(s) in (int, float) for s in levels.values())
            and all(0 < s < math.inf for s in levels.values())
        ):
            raise ValueError(
                f"[{i}].levels={levels!r}: must be like {{'3': 0.5}}, with shares"
                " above 0"
            )
        shares: dict[int, float] = collections.defaultdict(float)
        for level, share in ((int(k), v) for k, v in (levels or {}).items()):
            nearest = level  # beyond the problems' levels, which `Curriculum` refuses
            if there and there[0] <= level <= there[-1]:
                nearest = min(there, key=lambda k: abs(k - level))
            shares[nearest] += share
            if nearest != level:
                messages.append(
                    f"{stage.name!r}: no problem has level {level}; its share"
                    f" {share:g} is added to level {nearest}"
                )
        filled.append(dataclasses.replace(stage, levels=dict(shares) or None))
    return tuple(filled), messages
