"""Stages of a run: which levels it draws from, with which settings, and for how long.

A stage mixes levels in given proportions and may override the response length, the
group size, the temperature, `eps_high` and the learning rate. It ends after its number
of steps, or earlier by its advance rule: accuracy, or the share of groups that are all
right, pooled over a window of steps. Only steps that updated the policy count; rounds
of sampling and skipped steps do not.

Within a stage every problem of a level is seen once before any is seen twice; a level
that runs out starts its next pass by itself, and says so. The stage, its window and the
place in each level are the state; groups that were sampled and not yet trained on are
the collector's.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from configs.schema import Count, Index, Positive, Range, call
from rl.problems.reading import ProblemStream
from rl.types import Problem

Metric = Literal["accuracy", "solve_all"]
# By metric what a step counted and out of how many, such as right completions of all.
Counts = Mapping[Metric, tuple[float, float]]


class NoProblem(ValueError):
    """A stage's level that none of the problems has."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """When a stage may end before its last step."""

    metric: Metric  # accuracy of all completions, or share of groups that are all right
    at_least: Annotated[float, Range(0, 1, open=True)]  # by sums over the window
    window: Count  # steps of the sums; no earlier end is possible


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage; from `max_response_tokens` on, None is the run's own setting."""

    name: str
    levels: Mapping[int, float] | None = None  # shares; None: all problems alike
    steps: Count | None = None  # most that update; None: the last, or with `advance`
    advance: Advance | None = None  # the rule that may end it earlier
    max_response_tokens: Count | None = None
    group_size: Annotated[int, Range(2)] | None = None
    temperature: Positive | None = None  # of sampling and of log-probabilities
    eps_high: Positive | None = None
    learning_rate: Positive | None = None  # the schedule's peak, which it scales


class Curriculum:
    """Draws problems for the loop, stage by stage.

    For each step, in order: `begin`, any number of `draw`, `observe`, `metrics`.

    Args:
      stages: in order; the last one stays.
      problems: all that may be drawn.
      seed: of the order within each level.
      tell: receives a line at each new stage and pass.

    Raises:
      ValueError: a stage that never ends before the last.
      NoProblem: a level without problems.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        problems: Sequence[Problem],
        *,
        seed: Index,
        tell: Callable[[str], None] = print,
    ):
        if not stages:
            raise ValueError("no stage is given")
        for i, stage in enumerate(stages[:-1]):
            if stage.steps is None and stage.advance is None:
                raise ValueError(
                    f"[{i}]: give steps or advance; only the last may stay"
                )
        self._stages, self._tell = tuple(stages), tell
        self._streams: dict[int | None, ProblemStream] = {}
        for i, stage in enumerate(stages):
            for level in _levels(stage):
                if level in self._streams:
                    continue
                chosen = [p for p in problems if level is None or p.level == level]
                if not chosen:
                    raise NoProblem(f"[{i}].levels: no problem has level {level}")
                own = seed if level is None else (seed, level)
                self._streams[level] = ProblemStream(chosen, seed=own)
        self._stage, self._steps = 0, 0
        self._window: list[dict[str, list[float]]] = []
        self._drawn: collections.Counter = collections.Counter()

    def begin(self, step: int) -> Stage:
        """The stage of `step`, which is the next to be sampled."""
        if self._ends():
            self._stage, self._steps = self._stage + 1, 0
            self._window, self._drawn = [], collections.Counter()
            for level in _levels(self._stages[self._stage]):
                self._streams[level].next_pass()
            name = self._stages[self._stage].name
            self._tell(f"curriculum: step {step + 1} begins stage {name!r}")
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

    def draw(self, n: int) -> list[Problem]:
        """`n` problems in the stage's proportions, which hold over the whole stage."""
        stage = self._stages[self._stage]
        shares = dict.fromkeys(_levels(stage), 1.0) | dict(stage.levels or {})
        total = sum(shares.values())
        problems = []
        for _ in range(n):
            count = sum(self._drawn.values()) + 1
            # The level that lags most behind its share comes next.
            level = max(
                shares, key=lambda k: shares[k] / total * count - self._drawn[k]
            )
            self._drawn[level] += 1
            stream = self._streams[level]
            passes = stream.epoch
            problems += stream.draw(1)
            if stream.epoch > passes:
                of = "the problems" if level is None else f"level {level}"
                self._tell(f"curriculum: {of}: pass {stream.epoch + 1} begins")
        return problems

    def observe(self, counts: Counts, *, updates: bool) -> None:
        """Count a step, if it updates the policy.

        `counts` are of all its completions and groups, retained or not. A step that
        sampled nothing is not part of the window.
        """
        if not updates:
            return
        self._steps += 1
        if all(out_of > 0 for _, out_of in counts.values()):
            self._window.append({str(k): [*map(float, v)] for k, v in counts.items()})
            longest = self._stages[self._stage].advance
            self._window = self._window[-(longest.window if longest else 1) :]

    def metrics(self) -> dict[str, float]:
        """The stage, counted from 1, and complete passes of each level."""
        passes = {
            "curriculum/passes" + ("" if level is None else f"_{level}"): stream.epoch
            for level, stream in self._streams.items()
        }
        return {"curriculum/stage": self._stage + 1.0} | {
            key: float(value) for key, value in passes.items()
        }

    def state(self) -> dict[str, Any]:
        """JSON-able; `restore` of it continues with the very next problem."""
        return {
            "stage": self._stage,
            "steps": self._steps,
            "window": [dict(counts) for counts in self._window],
            "drawn": [[level, n] for level, n in sorted(self._drawn.items(), key=str)],
            "streams": [[level, s.state()] for level, s in self._streams.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`; ValueError if it is of other stages or levels."""
        streams = dict((level, of_level) for level, of_level in state["streams"])
        if streams.keys() != self._streams.keys() or state["stage"] >= len(
            self._stages
        ):
            raise ValueError("the checkpoint was written with other stages")
        self._stage, self._steps = state["stage"], state["steps"]
        self._window = [dict(counts) for counts in state["window"]]
        self._drawn = collections.Counter({level: n for level, n in state["drawn"]})
        for level, of_level in streams.items():
            self._streams[level].restore(of_level)


def _levels(stage: Stage) -> tuple[int | None, ...]:
    return (None,) if stage.levels is None else tuple(stage.levels)


def fill_gaps(
    stages: Sequence[Stage], problems: Sequence[Problem]
) -> tuple[tuple[Stage, ...], list[str]]:
    """Give a level's share to the nearest level if no problem has the level itself.

    Of two levels as near, the easier takes it. Also return a line on each such share.

    Raises:
      NoProblem: a level below or above all that the problems have.
    """
    there = sorted({p.level for p in problems if p.level is not None})
    filled, told = [], []
    for i, stage in enumerate(stages):
        shares: dict[int, float] = collections.defaultdict(float)
        for level, share in (stage.levels or {}).items():
            if not there or not there[0] <= level <= there[-1]:
                raise NoProblem(f"[{i}].levels: no problem has level {level}")
            nearest = min(there, key=lambda k: abs(k - level))
            shares[nearest] += share
            if nearest != level:
                told.append(
                    f"{stage.name!r}: no problem has level {level}, its share of"
                    f" {share:g} goes to level {nearest}"
                )
        levels = None if stage.levels is None else dict(shares)
        filled.append(dataclasses.replace(stage, levels=levels))
    return tuple(filled), told


def make_stages(stages: Sequence[Mapping[str, Any]]) -> tuple[Stage, ...]:
    """Make stages of their configuration; by default one that draws from all problems.

    Raises:
      ValueError: names the stage by its place, and the key.
    """
    made = []
    for i, section in enumerate(stages):
        try:
            made.append(_make_stage(section))
        except ValueError as error:
            raise ValueError(f"[{i}]{str(error).removeprefix('config')}") from None
    return tuple(made) or (Stage(name="all"),)


def _make_stage(section: Mapping[str, Any]) -> Stage:
    _check_mapping("", section)
    levels, advance = section.get("levels"), section.get("advance")
    settings = {k: v for k, v in section.items() if k not in ("levels", "advance")}
    if levels is not None:
        _check_mapping(".levels", levels)
        for level, share in levels.items():
            if not str(level).isdigit() or type(share) not in (int, float):
                raise ValueError(f".levels.{level}={share!r}: must be a level's share")
        if not levels or not all(share > 0 for share in levels.values()):
            raise ValueError(f".levels={dict(levels)}: needs positive shares")
        settings["levels"] = {int(k): v for k, v in levels.items()}
    if advance is not None:
        _check_mapping(".advance", advance)
        settings["advance"] = call(Advance, "advance", advance)
    return call(Stage, "", settings)


def _check_mapping(key: str, value: Any) -> None:
    if not hasattr(value, "items"):
        raise ValueError(f"{key}={value!r}: must be a section")
