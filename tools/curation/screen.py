"""One row in, one verdict out: repaired, turned into a value, and checked."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from configs.schema import Count, Index, Share
from tools.curation import choice, noise, quality, verifiable
from tools.curation.repair import repair
from tools.curation.row import Row

Check = Callable[[Row], str | None]


class Checked(NamedTuple):
    """A row after its checks.

    Attributes:
      row: the repaired row.
      repairs: names of the repairs that changed it.
      reasons: reason -> evidence, for every check that would drop it, in order.
    """

    row: Row
    repairs: tuple[str, ...]
    reasons: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Screen:
    """Repairs and checks of a configuration.

    Attributes:
      multiple_choice: "value" turns a question into its value where it can, "drop"
        drops them all.
      languages: "english" drops other languages, "any" keeps them.
      max_solve_rate: rows solved more often are dropped; 1 keeps all.
      min_solve_rate: rows with a solve rate below it are dropped; 0 keeps all, any
        positive value asks that at least one graded completion verified.
      min_grading: completions from which on a grading speaks against a row.
      max_disagreement: share of completions that agree on another answer than the gold
        from which on the gold is taken to be wrong.
      min_chars: shortest problem kept.
      max_chars: longest problem kept; about 3.5 characters make a token.
      max_answer_chars: longest answer kept.
    """

    multiple_choice: Literal["value", "drop"]
    languages: Literal["english", "any"]
    max_solve_rate: Share
    min_solve_rate: Share
    min_grading: Count
    max_disagreement: Share
    min_chars: Index
    max_chars: Count
    max_answer_chars: Count

    @functools.cached_property
    def steps(self) -> Mapping[str, Mapping[str, Check]]:
        """Step -> its checks; a row is counted under the first check that finds it."""
        found = dict(noise.CHECKS)
        if self.languages == "any":
            del found["other_language"]
        sized = (self.too_short, self.too_long, self.answer_too_long)
        graded = (
            self.solve_rate,
            self.never_answered,
            self.majority_against_gold,
            self.judged_unsound,
        )
        return {
            "verifiable": verifiable.CHECKS,
            "noise": found,
            "quality": {check.__name__: check for check in sized} | quality.CHECKS,
            "graded": {check.__name__: check for check in graded},
        }

    def __call__(self, row: Row) -> Checked:
        """Repairs the row and runs every check on it."""
        row, repairs = repair(row)
        if self.multiple_choice == "value" and len(row.answers) == 1:
            turned = choice.to_value(row.problem, row.answer)
            if turned is not None:
                row = dataclasses.replace(row, problem=turned[0], answers=(turned[1],))
                repairs += ("choice_to_value",)
        reasons = {
            name: evidence
            for checks in self.steps.values()
            for name, check in checks.items()
            if (evidence := check(row)) is not None
        }
        return Checked(row, repairs, reasons)

    def too_short(self, row: Row) -> str | None:
        """Too short to be a whole question."""
        size = len(row.problem)
        return f"{size} characters" if size < self.min_chars else None

    def too_long(self, row: Row) -> str | None:
        """Longer than a prompt may be."""
        size = len(row.problem)
        return f"{size} characters" if size > self.max_chars else None

    def answer_too_long(self, row: Row) -> str | None:
        """Longer than a rule checks reliably."""
        size = max(map(len, row.answers), default=0)
        return f"{size} characters" if size > self.max_answer_chars else None

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

    def judged_unsound(self, row: Row) -> str | None:
        """Judged by a model, and found incomplete, unverifiable or wrong."""
        judged = row.meta.get("judged")
        unsound = isinstance(judged, Mapping) and judged.get("sound") is False
        return " ".join(str(judged.get("said", "")).split()) if unsound else None

    def _grade(self, row: Row) -> Mapping[str, Any]:
        """What a grading says, where it drew enough to say anything."""
        grade = row.meta.get("graded")
        told = (
            isinstance(grade, Mapping) and grade.get("samples", 0) >= self.min_grading
        )
        return grade if told else {}
