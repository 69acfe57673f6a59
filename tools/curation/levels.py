"""Assigns levels 1 (easy) to 5 on one scale, as percentiles of solve rates."""

import collections
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata, spearmanr

from tools.curation.evidence import RATES
from tools.curation.row import Row

LEVELS = 5
_COMMON_ROWS = 100  # that two graders must both have graded to be linked
_MIN_CORRELATION = 0.3  # of two graders, below which one says nothing of the other


class Link(NamedTuple):
    """Holds sorted difficulties by one grader, and their positions on the scale."""

    theirs: np.ndarray
    positions: np.ndarray

    def position(self, difficulty: float) -> float:
        """Returns the position below which the same share of the rows lies.

        Equipercentile linking: Kolen and Brennan, Test Equating, chapter 2.
        """
        below = np.searchsorted(self.theirs, difficulty, "left")
        up_to = np.searchsorted(self.theirs, difficulty, "right")
        share = (below + up_to) / 2 / len(self.theirs)
        places = np.linspace(0, 1, len(self.positions))
        return float(np.interp(share, places, self.positions))


def level_scale(rows: Iterable[Row]) -> str | None:
    """Returns the scale of the levels: the one that graded most of the rows left."""
    scales = (name for row in rows if row.survives for name, _ in gradings(row))
    return next(iter(statistics.multimode(sorted(scales))), None)


def assign_levels(
    rows: Sequence[Row], scale: str | None, common_rows: int = _COMMON_ROWS
) -> dict[str, int]:
    """Gives rows left a level on `scale` or None; returns linked scale -> rows shared.

    A row's position is the mean of its positions by all graders. Another grader than
    `scale` counts if both graded at least `common_rows` rows and agree on which are
    harder. Levels that sources gave on `scale` stay. On a scale of solve rates, levels
    are fifths of the rows left, and rows that were never solved are 5.
    """
    graded: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for row in rows:
        for name, difficulty in gradings(row):
            graded[name].setdefault(row.key, difficulty)
    links = _links(scale or "", graded, common_rows)
    left = [row for row in rows if row.survives]
    positions = []
    for row in left:
        found = [links[name].position(d) for name, d in gradings(row) if name in links]
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
    return {name: len(x.theirs) for name, x in links.items() if name != scale}


def _links(
    scale: str, graded: Mapping[str, Mapping[str, float]], common_rows: int
) -> dict[str, Link]:
    """Returns `scale` itself, and graders that agree with it on what is harder."""
    own = graded.get(scale, {})
    if not own:
        return {}
    # Equal difficulties get different places, so that a finer scale stays finer.
    order = np.argsort(np.argsort([*own.values()], kind="stable"))
    places = dict(zip(own, (order + 0.5) / len(own), strict=True))
    links = {scale: Link(np.sort([*own.values()]), np.linspace(0, 1, len(own)))}
    for name, theirs in graded.items():
        common = [key for key in own if key in theirs]
        if name == scale or len(common) < max(2, common_rows):
            continue
        values = np.array([[theirs[key], own[key]] for key in common]).T
        if all(len({*side}) > 1 for side in values):
            if spearmanr(*values).statistic >= _MIN_CORRELATION:
                positions = np.sort([places[key] for key in common])
                links[name] = Link(np.sort(values[0]), positions)
    return links


def gradings(row: Row) -> Iterator[tuple[str, float]]:
    """Yields (scale, difficulty) for each grading of the row."""
    if row.level is not None and row.level_source:
        yield row.level_source, float(row.level)
    for one in row.evidence:
        if one.kind in RATES:
            yield one.by, -one.rate


def percentile_levels(rates: Sequence[float | None]) -> list[int | None]:
    """Makes levels of equal size from solve rates: the most solved fifth is level 1.

    Problems with equal rates get the level in which the middle of their block falls.
    The least solved are level 5 however many, unless all rates are equal and above 0:
    then nothing says what is hard. None stays None.
    """
    known = np.array([rate for rate in rates if rate is not None], np.float64)
    middle = (rankdata(-known) - 0.5) / max(1, known.size)
    levels = (middle * LEVELS).astype(int) + 1
    if 0 in known or len({*known}) > 1:
        levels[known == known.min()] = LEVELS
    found = iter(levels.tolist())
    return [None if rate is None else next(found) for rate in rates]
