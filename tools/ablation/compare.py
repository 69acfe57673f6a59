"""Compares runs: means over seeds, differences between arms, noise between seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from rl.statistics import compare_seeds, holm, t_interval

Figures = Mapping[str, float]  # of one run, by name, such as "accuracy"


def compare(
    runs: Mapping[str, Mapping[int, Figures]], *, reference: str
) -> dict[str, Any]:
    """Compares the figures `runs[arm][seed]` with those of the reference arm.

    Returns:
      A JSON object with `reference`, `cells` by arm and figure, and `noise` by figure.
      Cells and noise without data are missing. An interval, a difference or a p-value
      that cannot be computed is None.

      A cell has the `mean` over `seeds` seeds, its 95% `interval` (Student's t), and
      the `difference` from the reference arm. A difference has `mean`; `interval` and
      `p_value` by `compare_seeds`; `seeds`, the smaller number of seeds of both arms;
      and, if there is a p-value, `p_adjusted` by Holm's method over all arms.

      Noise has `sd`, the standard deviation between seeds, pooled over arms; `degrees`,
      its degrees of freedom; `seeds`, the largest number of seeds of an arm; and
      `shows`, the smallest significant difference (5%) of arms with `seeds` seeds each.
    """
    names = dict.fromkeys(n for arm in runs.values() for r in arm.values() for n in r)
    cells: dict[str, dict[str, Any]] = {arm: {} for arm in runs}
    noise = {}
    for name in names:
        by_arm = {
            arm: [run[name] for run in of_arm.values() if name in run]
            for arm, of_arm in runs.items()
        }
        tested = []
        for arm, values in by_arm.items():
            if not values:
                continue
            difference = None
            if arm != reference and by_arm[reference]:
                difference = _difference(by_arm[reference], values)
                tested += [difference] if difference["p_value"] is not None else []
            cells[arm][name] = {
                "mean": float(np.mean(values)),
                "interval": t_interval(values),
                "seeds": len(values),
                "difference": difference,
            }
        adjusted = holm([found["p_value"] for found in tested])
        for found, p_value in zip(tested, adjusted, strict=True):
            found["p_adjusted"] = p_value
        if entry := _noise(by_arm.values()):
            noise[name] = entry
    return {"reference": reference, "cells": cells, "noise": noise}


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
