"""Repairs rows and runs the checks of single rows."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.schema import Count, Index
from tools.curation import golds, noise, verifiable
from tools.curation.answers import unverifiable_answer
from tools.curation.repair import repair
from tools.curation.row import Row
from tools.curation.text import band_hashes, exact_key
from tools.page import is_number

Check = Callable[[Row], str | None]  # returns why the row is dropped, or None
_MIN_GRADING = 4  # minimum number of completions that can contradict a gold
_MAJORITY = 0.75  # minimum share of completions with the same answer


@dataclasses.dataclass(frozen=True)
class Screen:
    """Repairs rows and runs all checks, with the options of config.screen."""

    min_chars: Index
    max_chars: Count
    max_answer_chars: Count

    @property
    def checks(self) -> Mapping[str, Sequence[Check]]:
        return {
            "verifiable": (*verifiable.CHECKS, *golds.CHECKS),
            "noise": noise.CHECKS,
            "quality": (self.size, *noise.QUALITY_CHECKS),
            "graded": (majority_against_gold,),
            "verifier": (unverifiable_answer,),
        }

    @property
    def meanings(self) -> dict[str, dict[str, str]]:
        """Returns the first docstring line of each check, by step and check."""
        return {
            step: {c.__name__: (c.__doc__ or "").partition("\n")[0] for c in checks}
            for step, checks in self.checks.items()
        }

    def __call__(self, source_row: Row) -> Row:
        row, repairs = repair(source_row)
        row = dataclasses.replace(
            row,
            meta={**row.meta, **({"repairs": list(repairs)} if repairs else {})},
            key=exact_key(row.problem),
            bands=band_hashes(row.problem),
            reasons={},
        )
        for check in itertools.chain(*self.checks.values()):
            if (detail := check(row)) is not None:
                row.reasons[check.__name__] = detail
        row.solution = ""  # saves memory
        return row

    def size(self, row: Row) -> str | None:
        """Finds problems that are too short or long, and answers that are too long."""
        size, answer = len(row.problem), max(map(len, row.answers), default=0)
        if answer > self.max_answer_chars:
            return f"an answer of {answer} characters"
        fits = self.min_chars <= size <= self.max_chars
        return None if fits else f"{size} characters"


def majority_against_gold(row: Row) -> str | None:
    """Finds rows if 75% of completions give another answer, or none has an answer."""
    grade: Any = row.meta.get("graded")
    samples: Any = grade.get("samples") if isinstance(grade, Mapping) else None
    if not is_number(samples) or samples < _MIN_GRADING:
        return None
    if grade.get("unparsable") == samples:
        return f"none of {samples} completions has an answer"
    if grade.get("against_gold") and grade["agreement"] >= _MAJORITY:
        return f"{grade['agreement']:.0%} answer {grade['majority'][:60]}"
    return None
