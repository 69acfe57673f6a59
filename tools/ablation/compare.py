"""What runs say together: means over seeds, differences, and the noise of a seed."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from rl.statistics import Interval, t_interval
from tools.evaluation.paired import sign_flip_p_value

Figures = Mapping[str, float]
"""Of one run, by name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An arm less the reference, over the seeds that both have.

    Attributes:
      mean: of the differences of runs with the same seed.
      interval: 95%, by Student's t; None for one seed.
      p_value: of the paired permutation test (`sign_flip_p_value`); None for one seed.
        For n seeds it is never below `least_p_value(n)`.
      seeds: of both.
    """

    mean: float
    interval: Interval | None
    p_value: float | None
    seeds: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A figure of an arm.

    Attributes:
      mean: over seeds.
      interval: 95%, by Student's t; None for one seed.
      seeds: that have the figure.
      difference: to the reference; None for the reference itself, and where they have
        no seed in common.
    """

    mean: float
    interval: Interval | None
    seeds: int
    difference: Difference | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What the seed alone does to a figure.

    Attributes:
      sd: standard deviation between seeds, pooled over arms.
      degrees: of freedom of it.
      shows: the least difference of two arms' means, each of `seeds` seeds, that would
        be significant at 5% with that noise.
      seeds: the most that an arm has.
    """

    sd: float
    degrees: int
    shows: float
    seeds: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Arms side by side.

    Attributes:
      reference: the arm that others are compared with.
      cells: by arm and figure; what no run of an arm has is absent.
      noise: by figure, where an arm has two seeds.
    """

    reference: str
    cells: Mapping[str, Mapping[str, Cell]]
    noise: Mapping[str, Noise]

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)


def compare(runs: Mapping[str, Mapping[int, Figures]], *, reference: str) -> Comparison:
    """Compares runs that differ in their arm and their seed.

    Args:
      runs: figures by arm and seed; a run that has not ended is absent.
      reference: one of the arms.
    """
    names = list(
        dict.fromkeys(n for arm in runs.values() for run in arm.values() for n in run)
    )
    by_figure = {
        name: {
            arm: {seed: run[name] for seed, run in of_arm.items() if name in run}
            for arm, of_arm in runs.items()
        }
        for name in names
    }
    cells = {
        arm: {
            name: _cell(
                values[arm], None if arm == reference else values.get(reference, {})
            )
            for name, values in by_figure.items()
            if values[arm]
        }
        for arm in runs
    }
    noise = {name: _noise(values) for name, values in by_figure.items()}
    return Comparison(
        reference=reference,
        cells=cells,
        noise={name: found for name, found in noise.items() if found},
    )


def least_p_value(seeds: int) -> float:
    """The least that a two-sided test by signs can give: both ends of `2^seeds`."""
    return min(1.0, 2.0 ** (1 - seeds))


def _cell(
    values: Mapping[int, float], of_reference: Mapping[int, float] | None
) -> Cell:
    mine = list(values.values())
    difference = None
    if of_reference and (both := sorted(values.keys() & of_reference.keys())):
        differences = np.array([values[s] - of_reference[s] for s in both])
        difference = Difference(
            mean=float(differences.mean()),
            interval=t_interval(differences),
            p_value=sign_flip_p_value(differences) if len(both) > 1 else None,
            seeds=len(both),
        )
    return Cell(
        mean=float(np.mean(mine)),
        interval=t_interval(mine),
        seeds=len(mine),
        difference=difference,
    )


def _noise(values: Mapping[str, Mapping[int, float]]) -> Noise | None:
    several = [list(arm.values()) for arm in values.values() if len(arm) > 1]
    if not several:
        return None
    degrees = sum(len(arm) - 1 for arm in several)
    squares = sum(np.var(arm, ddof=1) * (len(arm) - 1) for arm in several)
    sd, seeds = math.sqrt(squares / degrees), max(map(len, several))
    shows = float(stats.t.ppf(0.975, degrees)) * sd * math.sqrt(2 / seeds)
    return Noise(sd=sd, degrees=degrees, shows=shows, seeds=seeds)
