"""Defines `Problem`, without JAX, because reward workers import this module too."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Represents a question with verifiable answers.

    Attributes:
      id: identifier, unique within the data set.
      problem: text of the question.
      answers: accepted gold answers; a completion must match one of them.
      source: name of the data source.
      level: difficulty, usually from 1 (easy) to 5, or None.
      meta: other columns of the problem's row, such as unit, error or subject.
    """

    id: str
    problem: str
    answers: tuple[str, ...]
    source: str = ""
    level: int | None = None
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
