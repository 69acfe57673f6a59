"""One row in, one verdict out: repaired, turned into a value, and checked."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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


@dataclasses.dataclass(frozen=True, slots=True)
class Screen:
    """Repairs and checks, in the order in which the report counts them.

    Attributes:
      steps: step -> its checks; a row is counted under the first check that finds it.
      choice_to_value: whether multiple choice becomes a question for its value.
    """

    steps: Mapping[str, Mapping[str, Check]]
    choice_to_value: bool

    def __call__(self, row: Row) -> Checked:
        """Repairs the row and runs every check on it."""
        row, repairs = repair(row)
        if self.choice_to_value and len(row.answers) == 1:
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


def make_screen(
    *,
    multiple_choice: str,
    languages: str,
    max_solve_rate: float,
    min_solve_rate: float,
    min_grading: int,
    max_disagreement: float,
    min_chars: int,
    max_chars: int,
    max_answer_chars: int,
) -> Screen:
    """The screen of a configuration.

    Args:
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
      max_chars: longest problem kept.
      max_answer_chars: longest answer kept.
    """
    if multiple_choice not in ("value", "drop"):
        raise ValueError(
            f"multiple_choice={multiple_choice!r}: must be 'value' or 'drop'"
        )
    if languages not in ("english", "any"):
        raise ValueError(f"languages={languages!r}: must be 'english' or 'any'")

    def solve_rate(row: Row) -> str | None:
        """Graded, and solved too rarely or too often to teach anything."""
        rate = row.solve_rate
        if rate is None or min_solve_rate <= rate <= max_solve_rate:
            return None
        return f"solve rate {rate:g}"

    def graded(row: Row) -> Mapping[str, Any]:
        found = row.meta.get("graded")
        return found if isinstance(found, Mapping) else {}

    def never_answered(row: Row) -> str | None:
        """Graded, and no completion gave an answer."""
        samples = graded(row).get("samples", 0)
        silent = samples >= min_grading and graded(row).get("unparsable") == samples
        return f"none of {samples} completions" if silent else None

    def majority_against_gold(row: Row) -> str | None:
        """Graded, and most completions agree on another answer than the gold."""
        grade = graded(row)
        if grade.get("samples", 0) < min_grading or not grade.get("against_gold"):
            return None
        if grade["agreement"] < max_disagreement:
            return None
        return f"{grade['agreement']:.0%} say {grade['majority'][:60]}"

    noise_checks = dict(noise.CHECKS)
    if languages == "any":
        del noise_checks["other_language"]
    return Screen(
        steps={
            "verifiable": verifiable.CHECKS,
            "noise": noise_checks,
            "quality": quality.make_checks(
                min_chars=min_chars,
                max_chars=max_chars,
                max_answer_chars=max_answer_chars,
            ),
            "graded": {
                "solve_rate": solve_rate,
                "never_answered": never_answered,
                "majority_against_gold": majority_against_gold,
            },
        },
        choice_to_value=multiple_choice == "value",
    )
