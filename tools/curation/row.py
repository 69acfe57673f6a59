"""The row that curation works on, and the schema of the files it comes from."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

FIELDS = (
    "id",
    "problem",
    "answer",
    "answers",
    "source",
    "level",
    "level_source",
    "solve_rate",
    "solution",
    "meta",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A candidate problem.

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
    """

    id: str
    problem: str
    answers: tuple[str, ...] = ()
    source: str = ""
    level: int | None = None
    level_source: str | None = None
    solve_rate: float | None = None
    solution: str = ""
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def answer(self) -> str:
        """The first accepted answer, or ""."""
        return self.answers[0] if self.answers else ""

    def record(self) -> dict[str, Any]:
        """The row as a JSON object of our own schema."""
        return {
            "id": self.id,
            "problem": self.problem,
            "answer": self.answer or None,
            "answers": list(self.answers),
            "source": self.source,
            "level": self.level,
            "level_source": self.level_source,
            "solve_rate": self.solve_rate,
            "solution": self.solution or None,
            "meta": dict(self.meta),
        }


def parse_row(
    record: Mapping[str, Any],
    *,
    where: str,
    fields: Mapping[str, str],
    default_id: str,
    source: str,
    level_source: str | None,
) -> Row:
    """Reads a row of a source.

    Args:
      record: the raw object.
      where: file and row, for messages.
      fields: our field name -> the source's, where they differ.
      default_id: id of a row that has none.
      source: name of the source, for rows that do not say.
      level_source: scale of this source's levels; None: the row's own `level_source`,
        else its source.

    Returns:
      The row, its missing values as None or "".

    Raises:
      ValueError: a field is missing, or holds a value of the wrong type.
    """
    names = {name: fields.get(name, name) for name in FIELDS}
    for name in {"problem", *fields} & set(names):
        if names[name] not in record:
            have = ", ".join(sorted(map(str, record))) or "nothing"
            raise ValueError(f"{where}: no field {names[name]!r} (it has: {have})")

    def text(name: str, *, required: bool = False) -> str:
        value = record.get(names[name])
        if value is None and not required:
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            if name in ("id", "answer") and math.isfinite(value):
                return _number(value)
        if not isinstance(value, str):
            raise ValueError(
                f"{where}: {names[name]!r} must be text, got {_brief(value)}"
            )
        return value

    level = _level(record.get(names["level"]), f"{where}: {names['level']!r}")
    row_source = text("source") or source
    meta = record.get(names["meta"]) or {}
    if not isinstance(meta, Mapping):
        raise ValueError(
            f"{where}: {names['meta']!r} must be an object, got {_brief(meta)}"
        )
    return Row(
        id=text("id") or default_id,
        problem=text("problem", required=True),
        answers=_answers(record.get(names["answers"]), text("answer"), where),
        source=row_source,
        level=level,
        level_source=(level_source or text("level_source") or row_source)
        if level is not None
        else None,
        solve_rate=_rate(
            record.get(names["solve_rate"]), f"{where}: {names['solve_rate']!r}"
        ),
        solution=text("solution"),
        meta=meta,
    )


def _answers(listed: Any, single: str, where: str) -> tuple[str, ...]:
    if listed is None:
        return (_trim(single),) if single.strip() else ()
    if not isinstance(listed, list) or not all(isinstance(a, str) for a in listed):
        raise ValueError(
            f"{where}: 'answers' must be a list of text, got {_brief(listed)}"
        )
    kept = dict.fromkeys(_trim(a) for a in [single, *listed] if a.strip())
    return tuple(kept)


def _trim(answer: str) -> str:
    """Without spaces around it; a TAB or a line feed there may be a `\\t` or `\\n`."""
    return answer.strip(" ")


def _level(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5:
        raise ValueError(f"{where} must be a level 1 to 5 or null, got {value!r}")
    return value


def _rate(value: Any, where: str) -> float | None:
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise ValueError(f"{where} must be a rate in 0..1 or null, got {value!r}")
    return float(value)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _brief(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"
