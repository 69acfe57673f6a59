"""Defines `Problem`. Reward workers import this module, so it must not import JAX."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Represents a question with verifiable answers."""

    id: str  # unique within the data set
    problem: str  # text of the question
    answers: tuple[str, ...]  # gold answers; a completion must match one of them
    source: str = ""
    level: int | None = None  # difficulty, usually from 1 (easy) to 5
    # Other columns of the problem's row, such as unit, error or subject.
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)
