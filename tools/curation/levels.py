"""Difficulty on one scale of 1 (easy) to 5."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How hard rows are on another scale and on ours, of those that both graded.

    Attributes:
      scale: the other's name.
      theirs: difficulty there, ascending, `[n]`: a level, or the negative solve rate.
      ours: level here, ascending, `[n]`.
      correlation: Spearman's rank correlation of the two.
      taken: whether they are rows enough, and agree on which are harder at all.
    """

    scale: str
    theirs: Sequence[float]
    ours: Sequence[int]
    correlation: float
    taken: bool

    def level(self, difficulty: float) -> int:
        """The level that as large a share of the common rows lies below.

        Equipercentile linking (Kolen and Brennan, Test Equating, chapter 2): it never
        falls with the difficulty, and takes neither scale's steps to be equal.
        """
        below = np.searchsorted(self.theirs, difficulty, side="left")
        through = np.searchsorted(self.theirs, difficulty, side="right")
        share = (below + through) / 2 / len(self.theirs)
        return int(np.quantile(self.ours, share, method="inverted_cdf"))

    def summary(self) -> dict[str, Any]:
        """What the report says of it; by level, where it begins on the other scale."""
        falling = sorted(set(self.theirs), reverse=True) if self.taken else ()
        return {
            "scale": self.scale,
            "common_rows": len(self.ours),
            "correlation": self.correlation,
            "taken": self.taken,
            "levels_from": {str(self.level(d)): d for d in falling},
        }


def link_scales(
    rows: Iterable[Screened], scale: str | None, common_rows: int
) -> dict[str, Link]:
    """The other scales of the rows, by name.

    Two graders have a row in common where both graded it or an exact copy of it.

    Args:
      rows: all of them, whatever speaks against them.
      scale: ours; None has no links.
      common_rows: that a scale must have with ours to be taken; 0 takes none.
    """
    graded: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for row in rows:
        for name, difficulty in _difficulties(row.record):
            graded[name].setdefault(row.key, difficulty)
    ours = graded.pop(scale, {}) if scale else {}
    links = {}
    for name, theirs in sorted(graded.items()) if ours else ():
        common = theirs.keys() & ours.keys()
        pairs = sorted((theirs[key], int(ours[key])) for key in common)
        there, here = ([pair[i] for pair in pairs] for i in (0, 1))
        apart = len(set(there)) > 1 and len(set(here)) > 1
        correlation = float(spearmanr(there, here).statistic) if apart else 0.0
        links[name] = Link(
            scale=name,
            theirs=there,
            ours=sorted(here),
            correlation=correlation,
            taken=0 < common_rows <= len(pairs) and correlation > 0,
        )
    return links


def _difficulties(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    """(scale, difficulty) for each grading that the record bears."""
    found = []
    if record["level"] is not None:
        found.append((record["level_source"], float(record["level"])))
    if record["solve_rate"] is not None:
        found.append((f"solve_rate:{record['source']}", -record["solve_rate"]))
    return found


def on_one_scale(
    record: Mapping[str, Any], scale: str | None, links: Mapping[str, Link]
) -> dict[str, Any]:
    """The record with its level on `scale`: its own, or by way of a link, or none.

    Levels of different scales do not compare: a "3" of one source is a "5" of another.
    A level that is given up is noted in `meta.other_level`, and `meta.level_from` names
    the scale by way of which there is one.
    """
    given = _difficulties(record)
    record = dict(record) | {"meta": dict(record["meta"])}
    if record["level_source"] == scale:
        return record
    if record["level"] is not None:
        record["meta"]["other_level"] = {
            "level": record["level"],
            "scale": record["level_source"],
        }
    record["level"] = record["level_source"] = None
    for name, difficulty in given:
        if name in links and links[name].taken:
            record["level"] = links[name].level(difficulty)
            record["level_source"] = scale
            record["meta"]["level_from"] = name
            break
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
