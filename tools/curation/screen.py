"""Repairs rows and runs the checks of single rows."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.curation import golds, noise, verifiable
from tools.curation.repair import repair
from tools.curation.row import Row
from tools.curation.text import band_hashes, exact_key
from tools.page import is_number

# Lengths in characters; a token has about 3.5.
_MIN_PROBLEM, _MAX_PROBLEM, _MAX_ANSWER = 16, 2500, 120
_MIN_GRADING = 4  # minimum number of completions that can contradict a gold
_MAJORITY = 0.75  # minimum share of completions with the same answer


def screen(source_row: Row) -> Row:
    """Returns a repaired copy of a row, with all reasons to drop it."""
    row, repairs = repair(source_row)
    row = dataclasses.replace(
        row,
        meta={**row.meta, **({"repairs": list(repairs)} if repairs else {})},
        key=exact_key(row.problem),
        bands=band_hashes(row.problem),
        reasons={},
    )
    for check in itertools.chain(*CHECKS.values()):
        if (detail := check(row)) is not None:
            row.reasons[check.__name__] = detail
    row.solution = ""  # saves memory
    return row


def size(row: Row) -> str | None:
    """Finds problems that are too short or long, and answers that are too long."""
    length, answer = len(row.problem), max(map(len, row.answers), default=0)
    if answer > _MAX_ANSWER:
        return f"an answer of {answer} characters"
    return None if _MIN_PROBLEM <= length <= _MAX_PROBLEM else f"{length} characters"


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


CHECKS: Mapping[str, Sequence[Callable[[Row], str | None]]] = {
    "verifiable": (*verifiable.CHECKS, *golds.CHECKS),
    "noise": noise.CHECKS,
    "quality": (size, *noise.QUALITY_CHECKS),
    "graded": (majority_against_gold,),
    "verifier": (golds.unverifiable_answer,),
}
"""Checks by step. A check returns why it drops a row, or None."""
