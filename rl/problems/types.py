"""A problem: what a reward's worker is given too, so that nothing here needs JAX."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with a verifiable answer.

    Attributes:
      id: unique within its data set.
      problem: the question as text.
      answers: accepted gold answers; any match counts.
      source: where it comes from.
      level: difficulty 1 (easy) to 5, or None.
      meta: all else that its row holds (units, tolerance, subject, tests ...).
    """

    id: str
    problem: str
    answers: tuple[str, ...]
    source: str = ""
    level: int | None = None
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
