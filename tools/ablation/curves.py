"""A run's curve, and ScaleRL's sigmoid through it (arXiv 2510.13786, eq. 1)."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from scipy import optimize

Spend = Callable[[Mapping[str, Any]], float]

SPENT: Mapping[str, Spend] = {
    "tokens": lambda row: row.get("sampling/tokens", 0),
    "steps": lambda row: float("seconds/step" in row),
    "seconds": lambda row: row.get("seconds/step", 0),
}
"""What a row of metrics.jsonl says was spent: completions' tokens, steps, seconds."""

FEWEST = 8  # points besides the first, for three parameters
_MOST_STEPS = 60
_BOUNDS = ((0.0, np.log(0.05), -np.inf), (1.0, np.log(50.0), np.inf))


def read_curve(
    rows: Iterable[Mapping[str, Any]], metric: str, spend: Spend
) -> tuple[np.ndarray, np.ndarray]:
    """A metric over what was spent before it was taken.

    All that rows before a point's have spent counts: completions of a step are drawn
    before its update, and an evaluation has a row of its own after it.

    Args:
      rows: of metrics.jsonl, in order.
      metric: its name there.
      spend: one of `SPENT`.

    Returns:
      What was spent, `[points]`, from 0 up, and the values, `[points]`.
    """
    points, spent = [], 0.0
    for row in rows:
        if metric in row:
            points.append((spent, row[metric]))
        spent += spend(row)
    return tuple(np.array(points, np.float64).reshape(-1, 2).T)


@dataclasses.dataclass(frozen=True, slots=True)
class Sigmoid:
    """`R_C = R_0 + (A - R_0) / (1 + (C_mid / C)^B)`, with R_0 the curve's first value.

    Attributes:
      A: where the curve would end.
      B: how steep it is.
      C_mid: what is spent half-way from R_0 to A.
    """

    A: float
    B: float
    C_mid: float

    def __call__(self, spent: np.ndarray, first: float) -> np.ndarray:
        """The values at `spent`, which is above 0."""
        return first + (self.A - first) / (1 + (self.C_mid / spent) ** self.B)


def fit_sigmoid(spent: np.ndarray, values: np.ndarray) -> Sigmoid | None:
    """Least squares through a curve of `read_curve`, A within [0, 1].

    None where the curve does not say what A is: it has few points; its half-way point
    lies before the first or behind the last of them, so that one side of it is a guess;
    or A and R_0 are less than two standard errors of their difference apart.
    """
    if len(values) <= FEWEST or spent[0] != 0:
        return None
    first, spent, values = values[0], spent[1:], values[1:]
    unit = spent[-1]

    def residuals(x: np.ndarray) -> np.ndarray:
        return Sigmoid(x[0], *np.exp(x[1:]))(spent / unit, first) - values

    starts = itertools.product((0.5, 1.0, 2.0, 4.0), (0.1, 0.3, 0.9))
    end = float(np.clip(values[-len(values) // 4 :].mean(), 0.01, 0.99))
    fits = [
        optimize.least_squares(
            residuals,
            (end, np.log(steep), np.log(middle)),
            bounds=_BOUNDS,
            max_nfev=_MOST_STEPS,  # a flat curve has no least to come to
        )
        for steep, middle in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    A, B, middle = float(best.x[0]), *map(float, np.exp(best.x[1:]))
    degrees = len(values) - len(best.x)
    noise = 2 * best.cost / degrees  # variance of a point, R_0 among them
    error = np.sqrt(noise * (1 + np.linalg.pinv(best.jac.T @ best.jac)[0, 0]))
    if not spent[0] <= middle * unit <= unit or abs(A - first) <= 2 * error:
        return None
    return Sigmoid(A=A, B=B, C_mid=middle * unit)
