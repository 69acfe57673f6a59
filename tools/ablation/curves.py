"""A run's curve, and ScaleRL's sigmoid through it (arXiv 2510.13786, eq. 1)."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import optimize, stats

Spend = Callable[[Mapping[str, Any]], float]

SPENT: Mapping[str, Spend] = {
    "tokens": lambda row: row.get("sampling/tokens", 0),
    "steps": lambda row: float("seconds/step" in row),
    "seconds": lambda row: row.get("seconds/step", 0),
}
"""What a row of metrics.jsonl says was spent: completions' tokens, steps, seconds."""

FEWEST = 8  # points besides the first, for four parameters
_MOST_STEPS = 60
_WIDEST = 0.2  # interval of A that is still reported
# Of R_0, log B, log C_mid as a share of what was spent, and A.
_BOUNDS = ((0.0, np.log(0.3), np.log(0.01), 0.0), (1.0, np.log(8.0), np.log(20.0), 1.0))


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
    """`R_C = R_0 + (A - R_0) / (1 + (C_mid / C)^B)`, with R_0 the value at C = 0.

    Attributes:
      A: asymptote.
      B: steepness.
      C_mid: what is spent half-way from R_0 to A.
      A_low, A_high: 95% interval of A, by the profile of the squared error.
    """

    A: float
    B: float
    C_mid: float
    A_low: float = 0.0
    A_high: float = 1.0

    def __call__(self, spent: np.ndarray, first: float) -> np.ndarray:
        """Returns the values at `spent`."""
        x = np.maximum(spent, 1e-12)
        return first + (self.A - first) / (1 + (self.C_mid / x) ** self.B)


def fit_sigmoid(spent: np.ndarray, values: np.ndarray) -> Sigmoid | None:
    """Fits a curve of `read_curve` by least squares, A and R_0 within [0, 1].

    None unless the curve determines A: it has more than `FEWEST` points, the interval
    of A ends before 1 and is at most 0.2 wide, and R_0 is outside of it by more than
    the noise of a point.
    """
    if len(values) <= FEWEST or spent[0] != 0:
        return None
    x, degrees = spent / spent[-1], len(values) - 4
    first = float(np.clip(values[:3].mean(), 0.01, 0.99))
    end = float(np.clip(values[-len(values) // 4 :].mean(), 0.01, 0.99))

    def fitted(start: Sequence[float], fixed: float | None = None):
        """Fits R_0, log B, log C_mid and, unless it is fixed, A."""
        low, high = (np.array(side[: 4 if fixed is None else 3]) for side in _BOUNDS)

        def residuals(p: np.ndarray) -> np.ndarray:
            asymptote = p[3] if fixed is None else fixed
            return Sigmoid(asymptote, *np.exp(p[1:3]))(x, p[0]) - values

        inside = np.clip(start[: len(low)], low + 1e-6, high - 1e-6)
        return optimize.least_squares(
            residuals, inside, bounds=(low, high), max_nfev=_MOST_STEPS
        )

    starts = itertools.product((1.0, 2.0), (0.1, 0.3, 0.9))
    best = min(
        (fitted((first, np.log(b), np.log(c), end)) for b, c in starts),
        key=lambda fit: fit.cost,
    )
    asymptote = float(best.x[3])
    limit = best.cost * (1 + float(stats.f.ppf(0.95, 1, degrees)) / degrees) + 1e-15

    def edge(outside: float) -> float:
        """Returns where the profile of A crosses the limit, by bisection."""
        inside, start = asymptote, best.x
        for step in range(9):
            # the far end first: an interval that reaches it has no edge
            middle = outside if step == 0 else (inside + outside) / 2
            fit = fitted(start, middle)
            if step == 0:
                tried = [
                    fit,
                    *(fitted((first, 0.3, np.log(c)), middle) for c in (0.5, 3)),
                ]
                fit = min(tried, key=lambda fit: fit.cost)
            if fit.cost <= limit:
                inside, start = middle, np.append(fit.x, middle)
                if step == 0:
                    return outside
            else:
                outside = middle
        return inside

    high = edge(1.0)
    if high >= 1.0 and asymptote < 0.98:
        return None
    low = edge(0.0)
    error = np.sqrt(2 * best.cost / degrees)
    if high - low > _WIDEST or low - error <= best.x[0] <= high + error:
        return None
    steepness, middle = map(float, np.exp(best.x[1:3]))
    return Sigmoid(asymptote, steepness, middle * float(spent[-1]), low, high)
