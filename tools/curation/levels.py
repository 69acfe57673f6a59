"""Difficulty on one scale of 1 (easy) to 5."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tools.curation.row import Screened

LEVELS = 5


def level_scale(wanted: str, rows: Iterable[Screened]) -> str | None:
    """The scale that levels are kept on: as wanted, or that which most rows have.

    Args:
      wanted: its name, or "auto", or "none".
      rows: of which those count that survive.
    """
    if wanted != "auto":
        return None if wanted == "none" else wanted
    scales = [row.record["level_source"] for row in rows if row.survives]
    counts = collections.Counter(scale for scale in scales if scale is not None)
    return min(counts, key=lambda scale: (-counts[scale], scale), default=None)


def on_one_scale(record: Mapping[str, Any], scale: str | None) -> dict[str, Any]:
    """The record, its level kept only if it is on `scale`.

    Levels of different scales do not compare: a "3" of one source is a "5" of another.
    A level that is given up is noted in `meta.other_level`.
    """
    record = dict(record) | {"meta": dict(record["meta"])}
    if record["level_source"] != scale:
        if record["level"] is not None:
            record["meta"]["other_level"] = {
                "level": record["level"],
                "scale": record["level_source"],
            }
        record["level"] = record["level_source"] = None
    return record


def percentile_levels(rates: Sequence[float | None]) -> list[int | None]:
    """Levels of equal size from solve rates: the most solved fifth is level 1.

    Problems with equal rates get the same level, so levels differ in size by at most
    the ties at their edges: a tied block goes to the level in which its middle falls.
    The least solved block is level 5 however large it is, so that a grader that solves
    little leaves a hardest level; what is never solved is always on it. Only where all
    rates are equal and above 0 nothing says what is hard. None stays None.

    Args:
      rates: fraction of right completions per problem, or None.

    Returns:
      A level 1..5 per problem, never rising with the rate.
    """
    known = [i for i, rate in enumerate(rates) if rate is not None]
    levels: list[int | None] = [None] * len(rates)
    if not known:
        return levels
    values = np.array([rates[i] for i in known], np.float64)
    # Rank by falling rate: how many are solved more often, and how many as often.
    ordered = np.sort(-values)
    before = np.searchsorted(ordered, -values, side="left")
    through = np.searchsorted(ordered, -values, side="right")
    middle = (before + through) / 2 / len(values)
    least = values.min()
    told_apart = least == 0 or least < values.max()
    for i, fraction, rate in zip(known, middle, values, strict=True):
        hardest = told_apart and rate == least
        levels[i] = LEVELS if hardest else min(LEVELS, int(fraction * LEVELS) + 1)
    return levels
