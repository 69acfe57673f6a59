"""Difficulty on one scale of 1 (easy) to 5."""

import statistics
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.stats import rankdata

from tools.curation.row import Row

LEVELS = 5


def level_scale(wanted: str, rows: Iterable[Row]) -> str | None:
    """The scale that levels are kept on; "auto" is that of most of the rows left."""
    if wanted != "auto":
        return wanted
    scales = (row.level_source for row in rows if row.survives and row.level_source)
    return next(iter(statistics.multimode(sorted(scales))), None)


def put_on_scale(row: Row, scale: str | None) -> None:
    """Gives up a level on any other scale, noted in `meta.other_level`.

    Levels of different scales do not compare: a "3" of one source is a "5" of another.
    """
    if row.level is not None and row.level_source != scale:
        other = {"level": row.level, "scale": row.level_source}
        row.meta = {**row.meta, "other_level": other}
        row.level, row.level_source = None, None


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
