"""What a run did: counts and examples, gathered row by row."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

EXAMPLES = 3
CONTAMINATED = 40
LENGTHS = (50, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2500)


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """The funnel: step -> reason -> what the reason means."""

    table: Mapping[str, Mapping[str, str]]

    @property
    def reasons(self) -> list[str]:
        """All reasons, in the order in which a row is counted."""
        return [reason for step in self.table.values() for reason in step]


class Report:
    """Counts and examples of one run, in memory that rows do not grow.

    Args:
      steps: the funnel.
    """

    def __init__(self, steps: Steps):
        self.steps = steps
        self.kept = collections.Counter()
        self.levels = collections.Counter()
        self.lengths = collections.Counter()
        self.answer_lengths = collections.Counter()
        self.repairs = collections.Counter()
        self.counted = collections.Counter()
        self.found = collections.Counter()
        self.by_source: dict[str, collections.Counter] = collections.defaultdict(
            collections.Counter
        )
        self.examples: dict[str, list[tuple[str, str, str]]] = collections.defaultdict(
            list
        )
        self.contaminated: list[tuple[str, str, str]] = []

    def add_kept(self, record: Mapping[str, Any]) -> None:
        """Counts a row that stays."""
        self.kept[record["source"]] += 1
        self.levels[record["level"]] += 1
        self.lengths[length_bin(len(record["problem"]))] += 1
        self.answer_lengths[min(len(record["answer"]), 40)] += 1
        self.repairs.update(record["meta"].get("repairs", ()))

    def add_dropped(
        self, record: Mapping[str, Any], evidence: Mapping[str, str]
    ) -> None:
        """Counts a row that goes, under the first of its reasons."""
        first = next(iter(evidence))
        self.counted[first] += 1
        self.found.update(evidence.keys())
        self.by_source[record["source"]][first] += 1
        examples = self.examples[first]
        if len(examples) < EXAMPLES:
            examples.append((record["id"], evidence[first], record["problem"]))
        for reason in self.steps.table["decontamination"]:
            if reason in evidence and len(self.contaminated) < CONTAMINATED:
                self.contaminated.append((record["id"], reason, evidence[reason]))

    def counts(self) -> dict[str, Any]:
        """The numbers of the report."""
        return {
            "rows": self.rows,
            "kept": sum(self.kept.values()),
            "with_level": sum(n for level, n in self.levels.items() if level),
            "levels": {str(k): self.levels[k] for k in level_order(self.levels)},
            "funnel": self.funnel(),
            "reasons": {
                reason: {"counted": self.counted[reason], "found": self.found[reason]}
                for reason in self.steps.reasons
            },
            "kept_by_source": dict(sorted(self.kept.items())),
            "dropped_by_source": {
                source: dict(sorted(counts.items()))
                for source, counts in sorted(self.by_source.items())
            },
            "repairs": dict(sorted(self.repairs.items())),
        }

    @property
    def rows(self) -> int:
        """All rows read."""
        return sum(self.kept.values()) + sum(self.counted.values())

    def funnel(self) -> list[dict[str, Any]]:
        """Rows in, dropped and out of each step."""
        left = self.rows
        table = []
        for step, reasons in self.steps.table.items():
            dropped = sum(self.counted[reason] for reason in reasons)
            table.append(
                {"step": step, "in": left, "dropped": dropped, "out": left - dropped}
            )
            left -= dropped
        return table


def level_order(levels: Mapping[int | None, int]) -> list[int | None]:
    """Levels from easy to hard, rows without one last."""
    return sorted(levels, key=lambda level: (level is None, level or 0))


def length_bin(length: int) -> int | str:
    """The upper edge of the histogram's bin."""
    return next((edge for edge in LENGTHS if length <= edge), "more")
