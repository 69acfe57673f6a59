"""Compares runs: means over seeds, differences between arms, noise of the seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from rl.statistics import compare_seeds, holm, t_interval

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
      As JSON has it: `reference`; `cells` by arm and figure, absent where no run of an
      arm has the figure; `noise` by figure, where an arm has two seeds.

      A cell is the `mean` over `seeds` seeds with its 95% `interval` (Student's t; None
      for one seed) and the `difference` from the reference: its `mean`, `interval` and
      `p_value` by `compare_seeds`, both None unless both arms have two seeds, and the
      `p_adjusted` of Holm's method over all arms that are compared in that figure.

      Noise is the standard deviation `sd` between seeds, pooled over arms, its
      `degrees` of freedom, and what it `shows`: the least difference of two arms with
      `seeds` seeds each that would be significant at 5%.
    """
    names = dict.fromkeys(
        n for arm in runs.values() for run in arm.values() for n in run
    )
    values = {
        name: {
            arm: [run[name] for run in of_arm.values() if name in run]
            for arm, of_arm in runs.items()
        }
        for name in names
    }
    cells: dict[str, dict[str, Any]] = {arm: {} for arm in runs}
    for name, by_arm in values.items():
        for arm, of_arm in by_arm.items():
            if of_arm:
                same = arm == reference or not by_arm[reference]
                cells[arm][name] = {
                    "mean": float(np.mean(of_arm)),
                    "interval": t_interval(of_arm),
                    "seeds": len(of_arm),
                    "difference": None
                    if same
                    else _difference(by_arm[reference], of_arm),
                }
        tested = [
            found
            for of_arm in cells.values()
            if (found := of_arm.get(name, {}).get("difference"))
            and found["p_value"] is not None
        ]
        adjusted = holm([found["p_value"] for found in tested])
        for found, p_value in zip(tested, adjusted, strict=True):
            found["p_adjusted"] = p_value
    noise = {name: _noise(by_arm.values()) for name, by_arm in values.items()}
    return {
        "reference": reference,
        "cells": cells,
        "noise": {name: found for name, found in noise.items() if found},
    }


def _difference(reference: Sequence[float], arm: Sequence[float]) -> dict[str, Any]:
    interval, p_value = compare_seeds(reference, arm) or (None, None)
    mean = float(np.mean(arm) - np.mean(reference))
    seeds = min(len(arm), len(reference))
    return {"mean": mean, "interval": interval, "p_value": p_value, "seeds": seeds}


def _noise(arms: Iterable[Sequence[float]]) -> dict[str, Any] | None:
    several = [arm for arm in arms if len(arm) > 1]
    if not several:
        return None
    degrees = sum(len(arm) - 1 for arm in several)
    squares = sum(float(np.var(arm) * len(arm)) for arm in several)
    sd, seeds = math.sqrt(squares / degrees), max(map(len, several))
    shows = float(stats.t.ppf(0.975, degrees)) * sd * math.sqrt(2 / seeds)
    return {"sd": sd, "degrees": degrees, "shows": shows, "seeds": seeds}
