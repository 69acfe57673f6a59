"""Reports by source: evidence, and how often golds were read as wrong by hand."""

import collections
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rl.files import read_rows
from rl.statistics import wilson_interval
from tools.curation.row import Row

Readings = Mapping[str, tuple[int, int]]
"""Source -> golds that somebody checked by hand, and how many of them were wrong."""


def load_readings(path: str) -> Readings:
    """Counts a JSONL file of checked golds, `{"source": ..., "wrong": true}` each.

    Raises:
      ValueError: a row lacks one of the two; the message names file and line.
    """
    counts: dict[str, tuple[int, int]] = collections.defaultdict(lambda: (0, 0))
    for where, row in read_rows(pathlib.Path(path)) if path else ():
        source, wrong = row.get("source"), row.get("wrong")
        if not isinstance(source, str) or not isinstance(wrong, bool):
            raise ValueError(
                f'{where}: must have "source": text and "wrong": true/false'
            )
        read, bad = counts[source]
        counts[source] = read + 1, bad + wrong
    return dict(counts)


def by_source(
    rows: Sequence[Row], least: float, readings: Readings
) -> list[dict[str, Any]]:
    """Returns one entry for each source, the largest first.

    `wrong golds` is the share among the rows read, with its 95% interval.
    """
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        groups[row.source].append(row)
    table = []
    for source, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        read, wrong = readings.get(source, (0, 0))
        share = ""
        if read:
            low, high = wilson_interval(wrong, read)
            share = f"{wrong / read:.1%} [{low:.1%}, {high:.1%}]"
        table.append(
            {
                "source": source,
                "rows": len(group),
                "with evidence": sum(row.strength >= least for row in group),
                "kept": sum(row.survives for row in group),
                "golds read": read,
                "wrong golds": share,
            }
        )
    return table
