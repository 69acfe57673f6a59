"""Compares the arms of an ablation, and measures the noise between seeds."""

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
    """Compares the figures of each arm, `runs[arm][seed]`, with the reference arm's.

    Returns:
      A dict with `reference`, `cells[arm][figure]` and `noise[figure]`. Cells and noise
      without data are missing. A value that cannot be computed is None.

      A cell has the `mean` over `seeds` seeds, the mean's 95% `interval` (Student's t),
      and the `difference` from the reference arm. A difference has its `mean`, the
      `interval` and `p_value` of `compare_seeds`, and in `seeds` the smaller of the two
      arms' numbers of seeds. If there is a p-value, `p_adjusted` is its value after
      Holm's correction for the number of compared arms.

      Noise has the standard deviation between seeds, `sd`, pooled over arms, and its
      `degrees` of freedom. `shows` is the smallest difference that is significant at 5%
      between two arms of `seeds` seeds each, the largest number of seeds of any arm.
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
