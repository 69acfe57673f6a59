"""Assigns difficulty levels 1 (easy) to 5 on the scale of one grader.

A grader is a data set's own levels, or a solver's solve rates.
"""

import collections
import functools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import percentileofscore, rankdata, spearmanr

from tools.curation.evidence import RATES
from tools.curation.row import Row

LEVELS = 5
Link = Callable[[float], float]  # from a difficulty to a position on the scale, 0..1
_COMMON_ROWS = 100  # minimum number of rows graded by both graders, to link them
_MIN_CORRELATION = 0.3  # minimum rank correlation of two graders, to link them


def level_scale(rows: Iterable[Row]) -> str | None:
    """Returns the grader of the most surviving rows; None if none of them is graded."""
    scales = (name for row in rows if row.survives for name, _ in gradings(row))
    return next(iter(statistics.multimode(sorted(scales))), None)


def assign_levels(
    rows: Sequence[Row], scale: str | None, common_rows: int = _COMMON_ROWS
) -> dict[str, int]:
    """Sets the level of each surviving row; None if its difficulty is unknown.

    docs/curation.md describes the rules. A grader needs at least `common_rows` problems
    in common with `scale` to be linked. Returns this number by linked grader.
    """
    graded: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for row in rows:
        for name, difficulty in gradings(row):
            graded[name].setdefault(row.key, difficulty)
    links = _links(scale or "", graded, common_rows)
    left = [row for row in rows if row.survives]
    positions = []
    for row in left:
        found = [links[name](d) for name, d in gradings(row) if name in links]
        positions.append(float(np.mean(found)) if found else None)
    named = scale
    if any(row.level_source == scale for row in rows):
        levels = [p if p is None else int(min(p, 0.99) * LEVELS) + 1 for p in positions]
    else:
        named = f"solve_rate:{scale}"
        levels = percentile_levels([None if p is None else 1 - p for p in positions])
    for row, level in zip(left, levels, strict=True):
        rates = [one.rate for one in row.evidence if one.kind in RATES]
        if level is not None and rates and not any(rates):
            level = LEVELS
        if row.level is None or row.level_source != scale:
            row.level, row.level_source = level, named if level is not None else None
    own = graded[scale or ""].keys()
    return {n: len(graded[n].keys() & own) for n in links if n != scale}


def _links(
    scale: str, graded: Mapping[str, Mapping[str, float]], common_rows: int
) -> dict[str, Link]:
    """Returns a link for `scale`, and one for each grader that correlates with it.

    `graded` has difficulties by grader and `Row.key`.
    """
    own = graded.get(scale, {})
    if not own:
        return {}
    # Equal difficulties get different positions, which keeps finer scales finer.
    order = np.argsort(np.argsort([*own.values()], kind="stable"))
    places = dict(zip(own, (order + 0.5) / len(own), strict=True))
    links = {scale: _link([*own.values()], np.linspace(0, 1, len(own)))}
    for name, theirs in graded.items():
        common = [key for key in own if key in theirs]
        if name == scale or len(common) < max(2, common_rows):
            continue
        values = np.array([[theirs[key], own[key]] for key in common]).T
        if all(len({*side}) > 1 for side in values):
            if spearmanr(*values).statistic >= _MIN_CORRELATION:
                links[name] = _link(values[0], [places[key] for key in common])
    return links


def _link(theirs: ArrayLike, positions: ArrayLike) -> Link:
    """Returns a function from difficulty to the position with the same percentile rank.

    `theirs` has difficulties of some rows, and `positions` the positions (0..1) of the
    same rows, in any order. This is equipercentile linking (Kolen and Brennan, Test
    Equating, chapter 2).
    """

    @functools.cache
    def position(difficulty: float) -> float:
        # Rounding can give slightly more than 100.
        rank = min(100.0, float(percentileofscore(theirs, difficulty, "mean")))
        return float(np.percentile(np.asarray(positions), rank))

    return position


def gradings(row: Row) -> Iterator[tuple[str, float]]:
    """Yields (grader, difficulty) pairs: (level_source, level) and (solver, -rate)."""
    if row.level is not None and row.level_source:
        yield row.level_source, float(row.level)
    for one in row.evidence:
        if one.kind in RATES:
            yield one.by, -one.rate


def percentile_levels(rates: Sequence[float | None]) -> list[int | None]:
    """Returns levels from solve rates: 1 for the highest fifth, 5 for the lowest.

    Problems with equal rates get the level of their mean rank. Problems with the lowest
    rate get level 5, unless all rates are equal and above 0. A rate of None gives None.
    """
    known = np.array([rate for rate in rates if rate is not None], np.float64)
    middle = (rankdata(-known) - 0.5) / max(1, known.size)
    levels = (middle * LEVELS).astype(int) + 1
    if 0 in known or len({*known}) > 1:
        levels[known == known.min()] = LEVELS
    found = iter(levels.tolist())
    return [None if rate is None else next(found) for rate in rates]
