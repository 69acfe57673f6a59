"""Compares the arms of an ablation, and measures the noise between seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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

      Noise is the standard deviation between seeds, pooled over arms.
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
        several = [values for values in by_arm.values() if len(values) > 1]
        if several:
            squares = sum(float(np.var(values) * len(values)) for values in several)
            degrees = sum(len(values) - 1 for values in several)
            noise[name] = math.sqrt(squares / degrees)
    return {"reference": reference, "cells": cells, "noise": noise}


def _difference(reference: Sequence[float], arm: Sequence[float]) -> dict[str, Any]:
    interval, p_value = compare_seeds(reference, arm) or (None, None)
    mean = float(np.mean(arm) - np.mean(reference))
    seeds = min(len(arm), len(reference))
    return {"mean": mean, "interval": interval, "p_value": p_value, "seeds": seeds}
