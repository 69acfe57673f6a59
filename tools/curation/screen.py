"""One row in, one verdict out: repaired, turned into a value, and checked."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from configs.schema import Count, Index, Share
from tools.curation import choice, noise, quality, verifiable
from tools.curation.repair import repair
from tools.curation.row import Row, seen
from tools.curation.text import band_hashes, exact_key

Check = Callable[[Row], str | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Screen:
    """Repairs and checks of a configuration.

    Attributes:
      multiple_choice: "value" turns a question into its value where it can, "drop"
        drops them all.
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
    max_solve_rate: Share
    min_solve_rate: Share
    min_grading: Count
    max_disagreement: Share
    min_chars: Index
    max_chars: Count
    max_answer_chars: Count

    @property
    def steps(self) -> Mapping[str, Mapping[str, Check]]:
        """Step -> its checks; a row is counted under the first check that finds it."""
        return {
            "verifiable": verifiable.CHECKS,
            "noise": noise.CHECKS,
            "quality": {"size": self.size} | quality.CHECKS,
            "graded": {
                "solve_rate": self.solve_rate,
                "never_answered": self.never_answered,
                "majority_against_gold": self.majority_against_gold,
                "judged_unsound": self.judged_unsound,
            },
        }

    def __call__(self, came: Row) -> Row:
        """The row repaired, without its solution, and what every check says of it."""
        row, repairs = repair(came)
        if self.multiple_choice == "value" and len(row.answers) == 1:
            turned = choice.to_value(row.problem, row.answer)
            if turned is not None:
                row = dataclasses.replace(row, problem=turned[0], answers=(turned[1],))
                repairs += ("choice_to_value",)
        found = {
            name: check(row)
            for checks in self.steps.values()
            for name, check in checks.items()
        }
        return dataclasses.replace(
            row,
            solution="",
            meta=row.meta | ({"repairs": list(repairs)} if repairs else {}),
            key=exact_key(row.problem),
            bands=band_hashes(row.problem),
            reasons={name: said for name, said in found.items() if said is not None},
            beside={"repaired": seen(came)} if repairs else {},
        )

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


def given(screen: Screen) -> Screen:
    """What a worker process does with each row, as `rl.verifier.workers` asks."""
    return screen
