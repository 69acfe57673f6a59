"""Repairs and checks one row."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.schema import Count, Index, Share
from tools.curation import golds, noise, verifiable
from tools.curation.answers import unverifiable_answer
from tools.curation.repair import repair
from tools.curation.row import Row, seen
from tools.curation.text import band_hashes, exact_key
from tools.page import is_number


@dataclasses.dataclass(frozen=True)
class Screen:
    """Holds the options of the checks, which configs/curate.py explains."""

    max_solve_rate: Share
    min_solve_rate: Share
    min_grading: Count
    max_disagreement: Share
    min_chars: Index
    max_chars: Count
    max_answer_chars: Count

    @property
    def checks(self) -> Mapping[str, Sequence[Callable[[Row], str | None]]]:
        """Maps steps to checks; a row counts under the first check that finds it."""
        return {
            "verifiable": (*verifiable.CHECKS, *golds.CHECKS),
            "noise": noise.CHECKS,
            "quality": (self.size, *noise.QUALITY_CHECKS),
            "graded": (
                self.solve_rate,
                self.never_answered,
                self.majority_against_gold,
                self.marked_invalid,
            ),
            "verifier": (unverifiable_answer,),
        }

    @property
    def meanings(self) -> dict[str, dict[str, str]]:
        """Maps steps to names of checks to what they find."""
        return {
            step: {
                check.__name__: (check.__doc__ or "").partition("\n")[0]
                for check in checks
            }
            for step, checks in self.checks.items()
        }

    def __call__(self, came: Row) -> Row:
        """Returns the repaired row with what every check says of it."""
        row, repairs = repair(came)
        row = dataclasses.replace(
            row,
            meta={**row.meta, **({"repairs": list(repairs)} if repairs else {})},
            key=exact_key(row.problem),
            bands=band_hashes(row.problem),
            reasons={},
            beside={"repaired": seen(came)} if repairs else {},
        )
        for check in itertools.chain(*self.checks.values()):
            if (said := check(row)) is not None:
                row.reasons[check.__name__] = said
        row.solution = ""
        return row

    def size(self, row: Row) -> str | None:
        """Finds problems that are too short or long, and answers that are too long."""
        size, answer = len(row.problem), max(map(len, row.answers), default=0)
        if answer > self.max_answer_chars:
            return f"an answer of {answer} characters"
        fits = self.min_chars <= size <= self.max_chars
        return None if fits else f"{size} characters"

    def solve_rate(self, row: Row) -> str | None:
        """Finds graded rows that are solved too rarely or too often."""
        rate = row.solve_rate
        if rate is None or self.min_solve_rate <= rate <= self.max_solve_rate:
            return None
        return f"solve rate {rate:g}"

    def never_answered(self, row: Row) -> str | None:
        """Finds graded rows for which no completion gave an answer."""
        grade = self._grade(row)
        silent = grade and grade.get("unparsable") == grade["samples"]
        return f"none of {grade['samples']} completions" if silent else None

    def majority_against_gold(self, row: Row) -> str | None:
        """Finds graded rows whose completions agree on another answer than the gold."""
        grade = self._grade(row)
        if not grade.get("against_gold") or grade["agreement"] < self.max_disagreement:
            return None
        return f"{grade['agreement']:.0%} say {grade['majority'][:60]}"

    def marked_invalid(self, row: Row) -> str | None:
        """Finds rows that their makers mark as invalid."""
        for column in ("problem_is_valid", "solution_is_valid"):  # NuminaMath-1.5
            if row.meta.get(column) not in (None, "Yes", True):
                return f"{column}: {row.meta[column]}"
        return None

    def _grade(self, row: Row) -> Mapping[str, Any]:
        """Returns a grading if it has enough samples, else nothing."""
        grade = row.meta.get("graded")
        if not isinstance(grade, Mapping):
            return {}
        samples = grade.get("samples", 0)
        return grade if is_number(samples) and samples >= self.min_grading else {}
