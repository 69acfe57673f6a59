"""One row in, one verdict out: repaired, turned into a value, and checked."""

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
    """Repairs and checks, whose options are explained in configs/curate.py."""

    max_solve_rate: Share
    min_solve_rate: Share
    min_grading: Count
    max_disagreement: Share
    min_chars: Index
    max_chars: Count
    max_answer_chars: Count

    @property
    def checks(self) -> Mapping[str, Sequence[Callable[[Row], str | None]]]:
        """Step -> its checks; a row is counted under the first check that finds it."""
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
        """Step -> name of a check -> what it finds."""
        return {
            step: {check.__name__: check.__doc__.partition("\n")[0] for check in checks}
            for step, checks in self.checks.items()
        }

    def __call__(self, came: Row) -> Row:
        """The row repaired, without its solution, and what every check says of it."""
        row, repairs = repair(came)
        row = dataclasses.replace(
            row,
            meta=row.meta | ({"repairs": list(repairs)} if repairs else {}),
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
        """Too short to be a question, longer than a prompt, or than a rule compares."""
        size, answer = len(row.problem), max(map(len, row.answers), default=0)
        if answer > self.max_answer_chars:
            return f"an answer of {answer} characters"
        fits = self.min_chars <= size <= self.max_chars
        return None if fits else f"{size} characters"

    def solve_rate(self, row: Row) -> str | None:
        """Graded, and solved too rarely or too often to teach anything."""
        rate = row.solve_rate
        if rate is None or self.min_solve_rate <= rate <= self.max_solve_rate:
            return None
        return f"solve rate {rate:g}"

    def never_answered(self, row: Row) -> str | None:
        """Graded, and no completion gave an answer."""
        grade = self._grade(row)
        silent = grade and grade.get("unparsable") == grade["samples"]
        return f"none of {grade['samples']} completions" if silent else None

    def majority_against_gold(self, row: Row) -> str | None:
        """Graded, and most completions agree on another answer than the gold."""
        grade = self._grade(row)
        if not grade.get("against_gold") or grade["agreement"] < self.max_disagreement:
            return None
        return f"{grade['agreement']:.0%} say {grade['majority'][:60]}"

    def marked_invalid(self, row: Row) -> str | None:
        """Its makers mark the problem or the solution as invalid."""
        for column in ("problem_is_valid", "solution_is_valid"):  # NuminaMath-1.5
            if row.meta.get(column) not in (None, "Yes", True):
                return f"{column}: {row.meta[column]}"
        return None

    def _grade(self, row: Row) -> Mapping[str, Any]:
        """What a grading says, where it drew enough to say anything."""
        grade = row.meta.get("graded")
        samples = grade.get("samples", 0) if isinstance(grade, Mapping) else 0
        return grade if is_number(samples) and samples >= self.min_grading else {}
