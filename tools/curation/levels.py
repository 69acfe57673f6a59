"""Difficulty on one scale of 1 (easy) to 5."""

import collections
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata, spearmanr

from tools.curation.row import Row

LEVELS = 5


def level_scale(wanted: str, rows: Iterable[Row]) -> str | None:
    """The scale that levels are kept on; "auto" is that of most of the rows left."""
    if wanted != "auto":
        return wanted
    scales = (row.level_source for row in rows if row.survives and row.level_source)
    return next(iter(statistics.multimode(sorted(scales))), None)


class Link(NamedTuple):
    """How hard rows are on another scale and on ours, of those that both graded."""

    theirs: Sequence[float]  # `[n]`, ascending: a level, or the negative solve rate
    ours: Sequence[int]  # level of each here, `[n]`
    correlation: float  # Spearman's
    taken: bool  # whether they are rows enough, and agree on which are harder at all

    def level(self, difficulty: float) -> int:
        """The level that as large a share of the common rows lies below.

        Equipercentile linking: Kolen and Brennan, Test Equating, chapter 2.
        """
        below = np.searchsorted(self.theirs, difficulty, side="left")
        through = np.searchsorted(self.theirs, difficulty, side="right")
        share = (below + through) / 2 / len(self.theirs)
        return int(np.quantile(self.ours, share, method="inverted_cdf"))

    def summary(self) -> dict[str, Any]:
        """What the report says of it; by level, where it begins on the other scale."""
        begins = {self.level(d): d for d in sorted(set(self.theirs), reverse=True)}
        told = ", ".join(f"{level}: {begins[level]:.3g}" for level in sorted(begins))
        return {
            "common_rows": len(self.ours),
            "correlation": self.correlation,
            "levels_from": told if self.taken else "not taken",
        }


def link_scales(
    rows: Iterable[Row], scale: str | None, common_rows: int
) -> dict[str, Link]:
    """The other scales of all rows, by name; none without one of ours.

    Two graders have a row in common where both graded it or an exact copy of it. With
    fewer than `common_rows` of them, or 0, a scale is not taken.
    """
    graded: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for row in rows:
        for name, difficulty in _difficulties(row):
            graded[name].setdefault(row.key, difficulty)
    ours = graded.pop(scale, {})
    links = {}
    for name, theirs in sorted(graded.items()) if ours else ():
        pairs = sorted((theirs[key], int(ours[key])) for key in theirs.keys() & ours)
        there, here = ([pair[i] for pair in pairs] for i in (0, 1))
        apart = len({*there}) > 1 and len({*here}) > 1
        correlation = float(spearmanr(there, here).statistic) if apart else 0.0
        taken = 0 < common_rows <= len(pairs) and correlation > 0
        links[name] = Link(there, here, correlation, taken)
    return links


def _difficulties(row: Row) -> Iterator[tuple[str, float]]:
    """(scale, difficulty) for each grading of the row."""
    if row.level is not None:
        yield row.level_source, float(row.level)
    if row.solve_rate is not None:
        yield f"solve_rate:{row.source}", -row.solve_rate


def put_on_scale(row: Row, scale: str | None, links: Mapping[str, Link]) -> None:
    """Gives a row its level on `scale`: its own, or by way of a link, or none.

    Levels of different scales do not compare: a "3" of one source is a "5" of another.
    A level that is given up is noted in `meta.other_level`, and `meta.level_from` names
    the scale by way of which there is one.
    """
    if row.level_source == scale:
        return
    meta = dict(row.meta)
    if row.level is not None:
        meta["other_level"] = {"level": row.level, "scale": row.level_source}
    gradings = list(_difficulties(row))
    row.level, row.level_source = None, None
    for name, difficulty in gradings:
        if row.level is None and name in links and links[name].taken:
            row.level, row.level_source = links[name].level(difficulty), scale
            meta["level_from"] = name
    row.meta = meta


def percentile_levels(rates: Sequence[float | None]) -> list[int | None]:
    """Levels of equal size from solve rates: the most solved fifth is level 1.

    Problems with equal rates get the same level, that in which the middle of their
    block falls. The least solved are level 5 however many, so that a grader that solves
    little leaves a hardest level; only where all rates are equal and above 0 nothing
    says what is hard. None stays None.
    """
    known = np.array([rate for rate in rates if rate is not None], np.float64)
    middle = (rankdata(-known) - 0.5) / max(1, known.size)
    levels = (middle * LEVELS).astype(int) + 1
    if 0 in known or len({*known}) > 1:
        levels[known == known.min()] = LEVELS
    found = iter(levels.tolist())
    return [None if rate is None else next(found) for rate in rates]
