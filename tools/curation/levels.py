"""Difficulty on one scale of 1 (easy) to 5."""

import collections
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy.stats import rankdata, spearmanr

from tools.curation.row import Row

LEVELS = 5
Link = np.ndarray  # `[2, n]`: of rows that two graders share, the difficulty by each


def level_scale(wanted: str, rows: Iterable[Row]) -> str | None:
    """The scale that levels are kept on; "auto" is that of most of the rows left."""
    if wanted != "auto":
        return wanted
    scales = (row.level_source for row in rows if row.survives and row.level_source)
    return next(iter(statistics.multimode(sorted(scales))), None)


def link_scales(
    rows: Iterable[Row], scale: str | None, common_rows: int
) -> dict[str, Link]:
    """The other scales that agree with ours on which rows are harder at all, by name.

    Two graders have a row in common where both graded it or an exact copy of it; with
    fewer than `common_rows` of them, or 0, there is no link.
    """
    graded: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for row in rows if common_rows else ():
        for name, difficulty in _difficulties(row):
            graded[name].setdefault(row.key, difficulty)
    ours, links = graded.pop(scale, {}), {}
    for name, theirs in graded.items():
        link = np.array([(theirs[key], ours[key]) for key in theirs.keys() & ours]).T
        apart = link.size >= 2 * common_rows and all(len({*side}) > 1 for side in link)
        if apart and spearmanr(*link).statistic > 0:
            links[name] = link
    return links


def _linked(link: Link, difficulty: float) -> int:
    """The level that as large a share of the common rows lies below.

    Equipercentile linking: Kolen and Brennan, Test Equating, chapter 2.
    """
    theirs, ours = link
    share = np.mean((theirs < difficulty) + (theirs == difficulty) / 2)
    return int(np.quantile(ours, share, method="inverted_cdf"))


def _difficulties(row: Row) -> Iterator[tuple[str, float]]:
    """(scale, difficulty) for each grading of the row."""
    if row.level is not None:
        yield row.level_source, float(row.level)
    if row.solve_rate is not None:
        yield f"solve_rate:{row.source}", -row.solve_rate


def put_on_scale(row: Row, scale: str | None, links: Mapping[str, Link]) -> None:
    """Gives a row its level on `scale`: its own, or by way of a link, or none.

    Levels of different scales do not compare: a "3" of one source is a "5" of another.
    One that is given up is noted in `meta.other_level`, the link in `meta.level_from`.
    """
    if row.level_source == scale:
        return
    gradings, level = [*_difficulties(row)], row.level
    if level is not None:
        other = {"level": level, "scale": row.level_source}
        row.meta = {**row.meta, "other_level": other}
    row.level, row.level_source = None, None
    for name, difficulty in gradings[::-1]:
        if name in links:
            row.level, row.level_source = _linked(links[name], difficulty), scale
            row.meta = {**row.meta, "level_from": name}


def percentile_levels(rates: Sequence[float | None]) -> list[int | None]:
    """Levels of equal size from solve rates: the most solved fifth is level 1.

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
