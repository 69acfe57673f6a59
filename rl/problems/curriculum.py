"""Defines the curriculum: the stages of a run and the order of its problems.

A stage mixes difficulty levels in given proportions and may override settings. It ends
after its number of steps, or earlier by its advance rule. The rule compares a metric,
pooled over a window of steps, with a threshold. Steps without an update do not count.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from configs.base import Stage
from configs.schema import Index
from rl.types import Problem
from rollout.seeds import generator

Metric = Literal["accuracy", "solve_all"]
# Numerator and denominator of each metric, such as correct and all completions.
Counts = Mapping[Metric, tuple[float, float]]


class NoProblem(ValueError):
    """Signals that a stage names a level that no problem has."""


class Curriculum:
    """Draws problems stage by stage; the last stage never ends.

    The problems of a level are drawn in passes. A pass draws every problem once, in an
    order that depends on the seed, the level and the number of the pass.

    In each step, call `begin`, then `draw` any number of times, then `observe` and
    `metrics`. `on_message` receives a message when a later stage or pass begins. Raises
    ValueError if a stage before the last cannot end, or a level has no problems.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        problems: Sequence[Problem],
        *,
        seed: Index,
        on_message: Callable[[str], None] = print,
    ):
        self._stages, self._on_message = tuple(stages), on_message
        self._seed = seed
        self._problems: dict[int | None, list[Problem]] = {}  # of each level
        self._orders: dict[int | None, np.ndarray] = {}  # of each level's current pass
        for i, stage in enumerate(stages):
            if i < len(stages) - 1 and stage.steps is None and stage.advance is None:
                raise ValueError(
                    f"[{i}]: never ends; set steps or advance, or make it the last"
                    " stage"
                )
            for level in _levels(stage):
                if level in self._problems:
                    continue
                chosen = [p for p in problems if level is None or p.level == level]
                if not chosen:
                    raise NoProblem(f"[{i}].levels: no problem has level {level}")
                self._problems[level] = chosen
        self._totals = dict.fromkeys(self._problems, 0)  # problems drawn of each level
        self._stage, self._steps = 0, 0
        self._window: list[dict[str, list[float]]] = []
        # Problems drawn of each level in this stage.
        self._drawn: collections.Counter = collections.Counter()

    def begin(self, step: int) -> Stage:
        """Returns the stage of a step: the next one if the current stage has ended."""
        if self._ends():
            self._stage, self._steps = self._stage + 1, 0
            self._window, self._drawn = [], collections.Counter()
            name = self._stages[self._stage].name
            self._on_message(f"curriculum: step {step + 1} begins stage {name!r}")
        return self._stages[self._stage]

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

    def draw(self) -> Problem:
        """Draws the next problem, in the proportions of the stage's levels."""
        stage = self._stages[self._stage]
        shares = dict.fromkeys(_levels(stage), 1.0) | dict(stage.levels or {})
        total, count = sum(shares.values()), self._drawn.total() + 1
        behind = {k: shares[k] / total * count - self._drawn[k] for k in shares}
        level = max(behind, key=lambda k: behind[k])
        problems = self._problems[level]
        passes, position = divmod(self._totals[level], len(problems))
        if position == 0 or level not in self._orders:
            own = () if level is None else (level,)
            random = generator(self._seed, *own, passes)
            self._orders[level] = random.permutation(len(problems))
        if position == 0 and passes:
            of = "the problems" if level is None else f"level {level}"
            self._on_message(f"curriculum: {of}: pass {passes + 1} begins")
        self._drawn[level] += 1
        self._totals[level] += 1
        return problems[self._orders[level][position]]

    def observe(self, counts: Counts, *, updates: bool) -> None:
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
        """Returns the stage number and the number of earlier passes of each level."""
        return {"curriculum/stage": self._stage + 1.0} | {
            f"curriculum/passes{'' if level is None else f'_{level}'}": float(
                max(total - 1, 0) // len(self._problems[level])
            )
            for level, total in self._totals.items()
        }

    def state(self) -> dict[str, Any]:
        """Returns the stage and the position in each level as JSON, for `restore`."""
        return {
            "stage": self._stage,
            "steps": self._steps,
            "window": [dict(counts) for counts in self._window],
            "drawn": [[level, n] for level, n in sorted(self._drawn.items(), key=str)],
            "totals": [[level, n] for level, n in self._totals.items()],
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
        self._drawn = collections.Counter(dict(state["drawn"]))
        self._totals, self._orders = totals, {}


def _levels(stage: Stage) -> tuple[int | None, ...]:
    return (None,) if stage.levels is None else tuple(stage.levels)


def fill_gaps(
    stages: Sequence[Stage], problems: Sequence[Problem]
) -> tuple[tuple[Stage, ...], list[str]]:
    """Replaces levels without problems by the nearest level that has problems.

    Of two levels that are equally near, the lower one is used. Levels may be texts, as
    in a config; the returned stages have numbers. Also returns a message for each
    replaced level. Raises ValueError if the levels of a stage are not valid, and
    NoProblem if one of them is outside the range of the problems' levels.
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
            if not there or not there[0] <= level <= there[-1]:
                raise NoProblem(f"[{i}].levels: no problem has level {level}")
            nearest = min(there, key=lambda k: abs(k - level))
            shares[nearest] += share
            if nearest != level:
                messages.append(
                    f"{stage.name!r}: no problem has level {level}; its share"
                    f" {share:g} is added to level {nearest}"
                )
        filled.append(dataclasses.replace(stage, levels=dict(shares) or None))
    return tuple(filled), messages
