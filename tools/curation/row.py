"""Defines the row that curation works on."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rl.problems.types import Problem
from tools.curation.evidence import Evidence, strength

FIELDS = (
    "id problem answer answers source level level_source solve_rate solution".split()
)
"""What a source can say of a row, as our own schema orders it; `meta` is the rest."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """Holds a candidate problem and what curation finds out about it."""

    id: str  # unique within its source
    problem: str
    answers: Sequence[str] = ()  # accepted golds; empty when the source gives none
    source: str = ""
    level: int | None = None  # 1 (easy) to 5
    level_source: str | None = None  # the scale that `level` is on
    solve_rate: float | None = None  # fraction of graded completions that were right
    solution: str = ""
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # all else
    evidence: Sequence[Evidence] = ()  # that the gold is right
    origin: str = ""  # sets of different origins agree independently of each other
    key: str = ""  # what exact duplicates share
    bands: Sequence[int] = ()  # hashes by which near duplicates meet
    # reason -> evidence, the first the one that the row counts under
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    # reason -> the other problem, of a copy or of an evaluation set
    beside: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.evidence = tuple(self.evidence)

    @property
    def strength(self) -> float:
        """Returns how strong the evidence for the gold is; see `Evidence.strength`."""
        return strength(self.evidence)

    @property
    def answer(self) -> str:
        """Returns the first accepted answer, or ""."""
        return self.answers[0] if self.answers else ""

    @property
    def survives(self) -> bool:
        """Returns whether no reason to drop the row was found so far."""
        return not self.reasons

    def against(self, reason: str, evidence: str, other: "Row | Problem") -> None:
        """Adds a reason to drop the row: another problem."""
        self.reasons[reason], self.beside[reason] = evidence, seen(other)

    def record(self) -> dict[str, Any]:
        """Returns the row as a JSON object of our own schema."""
        record = {name: getattr(self, name) for name in (*FIELDS, "meta")}
        evidence = [dataclasses.asdict(one) for one in self.evidence]
        return record | {"answer": self.answer or None, "evidence": evidence}


def seen(problem: Row | Problem) -> dict[str, str]:
    """Returns what the report shows of a problem."""
    given = " or ".join(problem.answers)
    return {"id": problem.id, "problem": problem.problem, "answer": given}
