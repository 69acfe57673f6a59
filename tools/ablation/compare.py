"""What runs say together: means over seeds, differences, and the noise of a seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from rl.statistics import t_interval
from tools.evaluation.paired import sign_flip_p_value

Figures = Mapping[str, float]
"""Of one run, by name."""


def compare(
    runs: Mapping[str, Mapping[int, Figures]], *, reference: str
) -> dict[str, Any]:
    """Compares runs that differ in their arm and their seed.

    Args:
      runs: figures by arm and seed; a run that has not ended is absent.
      reference: one of the arms.

    Returns:
      As JSON has it: `reference`; `cells` by arm and figure, where what no run of an
      arm has is absent; `noise` by figure, where an arm has two seeds.

      A cell is the `mean` over as many `seeds` as have the figure, with its 95%
      `interval` by Student's t, None for one seed, and the `difference` to the
      reference over the seeds that both have, None for the reference itself and where
      there are none: `mean`, `interval` and `seeds` as before, and the `p_value` of the
      paired permutation test (`sign_flip_p_value`), None for one seed and for n never
      below `least_p_value(n)`.

      Noise is the standard deviation `sd` between seeds, pooled over arms, its
      `degrees` of freedom, and what it `shows`: the least difference of two arms'
      means, each of `seeds` seeds, the most that an arm has, that would be significant
      at 5%.
    """
    names = dict.fromkeys(
        n for arm in runs.values() for run in arm.values() for n in run
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
            name: _cell(values[arm], {} if arm == reference else values[reference])
            for name, values in by_figure.items()
            if values[arm]
        }
        for arm in runs
    }
    noise = {name: _noise(values.values()) for name, values in by_figure.items()}
    return {
        "reference": reference,
        "cells": cells,
        "noise": {name: found for name, found in noise.items() if found},
    }


def least_p_value(seeds: int) -> float:
    """The least that a two-sided test by signs can give: both ends of `2^seeds`."""
    return min(1.0, 2.0 ** (1 - seeds))


def _cell(
    values: Mapping[int, float], of_reference: Mapping[int, float]
) -> dict[str, Any]:
    both = sorted(values.keys() & of_reference.keys())
    differences = np.array([values[seed] - of_reference[seed] for seed in both])
    difference = None
    if both:
        p_value = sign_flip_p_value(differences) if len(both) > 1 else None
        difference = _over_seeds(differences) | {"p_value": p_value}
    return _over_seeds(list(values.values())) | {"difference": difference}


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": float(np.mean(values)),
        "interval": t_interval(values),
        "seeds": len(values),
    }


def _noise(arms: Iterable[Mapping[int, float]]) -> dict[str, Any] | None:
    several = [list(arm.values()) for arm in arms if len(arm) > 1]
    if not several:
        return None
    degrees = sum(len(arm) - 1 for arm in several)
    squares = sum(np.var(arm, ddof=1) * (len(arm) - 1) for arm in several)
    sd, seeds = math.sqrt(squares / degrees), max(map(len, several))
    shows = float(stats.t.ppf(0.975, degrees)) * sd * math.sqrt(2 / seeds)
    return {"sd": sd, "degrees": degrees, "shows": shows, "seeds": seeds}
