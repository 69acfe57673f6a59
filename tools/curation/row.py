"""Defines `Row`, a problem during curation."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tools.curation.evidence import Evidence
from tools.curation.formats import FIELDS


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """Holds a problem and the results of curation."""

    id: str  # as in the source; made unique in the outputs
    problem: str
    answers: Sequence[str] = ()  # accepted golds; empty if the source has none
    source: str = ""
    level: int | None = None  # 1 (easy) to 5
    level_source: str | None = None  # the scale that `level` is on
    solve_rate: float | None = None  # share of correct completions
    solution: str = ""
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # other columns
    evidence: Sequence[Evidence] = ()  # results of independent solvers
    origin: str = ""  # where the golds were made; see `Source.origin`
    key: str = ""  # hash that exact duplicates share; see `text.exact_key`
    # Rows are compared as near duplicates if they share a hash; see `text.band_hashes`.
    bands: Sequence[int] = ()
    # Details by reason to drop the row. Reports count the row under the first reason.
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def strength(self) -> float:
        """Returns the largest `Evidence.strength`, or 0 without evidence."""
        return max((one.strength for one in self.evidence), default=0.0)

    @property
    def solvers(self) -> str:
        """Returns the results of the solvers, such as "Llama: 3/8, Qwen: 5/16"."""
        found = (f"{one.by}: {one.correct}/{one.samples}" for one in self.evidence)
        return ", ".join(found)

    @property
    def answer(self) -> str:
        return self.answers[0] if self.answers else ""

    @property
    def survives(self) -> bool:
        return not self.reasons

    def record(self) -> dict[str, Any]:
        """Returns the row in the schema of problems.jsonl, with its solution added."""
        record = {name: getattr(self, name) for name in (*FIELDS, "meta")}
        evidence = [dataclasses.asdict(one) for one in self.evidence]
        return record | {"answer": self.answer or None, "evidence": evidence}
