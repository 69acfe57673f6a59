"""The row that curation works on, from a source's object to ours."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rl.problems.types import Problem

FIELDS = (
    "id problem answer answers source level level_source solve_rate solution".split()
)
"""What a source can say of a row, as our own schema orders it; `meta` is the rest."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """A candidate problem, and what curation finds out about it.

    Attributes:
      id: unique within its source.
      problem: the question as text.
      answers: accepted gold answers; empty when the source gives none.
      source: where it comes from.
      level: difficulty 1 (easy) to 5, or None.
      level_source: the scale that `level` is on; None without a level.
      solve_rate: fraction of graded completions that were right, or None.
      solution: a worked solution, or "".
      meta: whatever else the row holds.
      key: what exact duplicates share.
      bands: hashes by which near duplicates meet.
      reasons: reason -> evidence, for all that speaks against it, first that it counts
        under.
      beside: reason -> the problem that it was found beside, where there is one; under
        "repaired" the row as it came.
    """

    id: str
    problem: str
    answers: Sequence[str] = ()
    source: str = ""
    level: int | None = None
    level_source: str | None = None
    solve_rate: float | None = None
    solution: str = ""
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    key: str = ""
    bands: Sequence[int] = ()
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    beside: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The first accepted answer, or ""."""
        return self.answers[0] if self.answers else ""

    @property
    def survives(self) -> bool:
        """Whether nothing speaks against it so far."""
        return not self.reasons

    def against(self, reason: str, evidence: str, other: "Row | Problem") -> None:
        """Notes that the row goes because of another problem."""
        self.reasons[reason], self.beside[reason] = evidence, seen(other)

    def record(self) -> dict[str, Any]:
        """The row as a JSON object of our own schema."""
        said = {name: getattr(self, name) for name in (*FIELDS, "meta")}
        return said | {"answer": self.answer or None}


def seen(problem: Row | Problem) -> dict[str, str]:
    """What a reader of the report sees of a problem."""
    given = " or ".join(problem.answers)
    return {"id": problem.id, "problem": problem.problem, "answer": given}
