"""The row that curation works on, and the schema of the files it comes from."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tools.curation.formats import has, split, unwrapped

# What some sets write where they have no answer (NuminaMath-1.5).
_NONE = ("proof", "notfound")
_LEVEL = re.compile(r"(?:level\s*)?([1-5])", re.I)
_UNKNOWN_LEVEL = re.compile(r"(?:level\s*)?\??", re.I)
# The worked solution that stands in the answer's place, as in GSM8K.
_WORKED = re.compile(r"\n#### *(?=\S)")


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
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        first = {"id": self.id, "problem": self.problem, "answer": self.answer or None}
        return first | fields | {"answers": list(self.answers), "meta": {**self.meta}}


class Seen(NamedTuple):
    """A problem as a reader of the report sees it beside another."""

    id: str
    problem: str
    answer: str


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Screened:
    """A row as its checks left it, and what later steps decide about it.

    Attributes:
      record: the repaired row, an object of our own schema without its solution.
      key: what exact duplicates share.
      bands: hashes by which near duplicates meet.
      reasons: reason -> evidence, for all that speaks against it.
      beside: reason -> the problem that it was found beside, where there is one; under
        "repaired" the row as it came.
    """

    record: dict[str, Any]
    key: str
    bands: list[int]
    reasons: dict[str, str]
    beside: dict[str, Seen] = dataclasses.field(default_factory=dict)

    @property
    def seen(self) -> Seen:
        """What a reader sees of it."""
        return seen(self.record)

    def against(self, reason: str, evidence: str, other: Seen) -> None:
        """Notes that the row goes because of another problem."""
        self.reasons[reason], self.beside[reason] = evidence, other

    @property
    def survives(self) -> bool:
        """Whether nothing speaks against it so far."""
        return not self.reasons

    @property
    def problem(self) -> str:
        """The question as text."""
        return self.record["problem"]

    @property
    def answers(self) -> list[str]:
        """Accepted gold answers."""
        return self.record["answers"]


def seen(record: Mapping[str, Any]) -> Seen:
    """What a reader sees of a record of our own schema."""
    return Seen(record["id"], record["problem"], " or ".join(record["answers"]))


def parse_row(
    record: Mapping[str, Any],
    *,
    where: str,
    fields: Mapping[str, str],
    required: Collection[str],
    default_id: str,
    source: str,
    level_source: str | None,
) -> Row:
    """Reads a row of a source; what no field takes goes to `meta`.

    Args:
      record: the raw object.
      where: file and row, for messages.
      fields: our field name -> its path in the record.
      required: of our fields, those that must be there.
      default_id: id of a row that has none.
      source: name of the source, for rows that do not say.
      level_source: scale of this source's levels; None: the row's own `level_source`,
        else its source.

    Returns:
      The row, its missing values as None or "".

    Raises:
      ValueError: a field is missing, or holds a value of the wrong type.
    """
    for name in required:
        if not has(record, fields[name]):
            have = ", ".join(sorted(map(str, record))) or "nothing"
            raise ValueError(f"{where}: no field {fields[name]!r} (it has: {have})")
    values, meta = split(record, fields)

    def text(name: str) -> str:
        value = values.get(name)
        if value is None and name != "problem":
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            if name in ("id", "answer") and math.isfinite(value):
                return _number(value)
        if not isinstance(value, str):
            raise ValueError(
                f"{where}: {fields[name]!r} must be text, got {_brief(value)}"
            )
        return value

    def named(name: str, parse: Callable[[Any, str], Any]) -> Any:
        value = values.get(name)
        where_named = f"{where}: {fields.get(name)!r}"
        return None if value is None else parse(value, where_named)

    level = named("level", _level)
    row_source = text("source") or source
    answer, solution = text("answer"), text("solution")
    if not solution and _WORKED.search(answer):
        answer, solution = "", answer
    return Row(
        id=text("id") or default_id,
        problem=unwrapped(text("problem")),
        answers=_answers(named("answers", _listed) or [], answer),
        source=row_source,
        level=level,
        level_source=(level_source or text("level_source") or row_source)
        if level is not None
        else None,
        solve_rate=named("solve_rate", _rate),
        solution=solution,
        meta=meta,
    )


def _listed(value: Any, where: str) -> list[str]:
    """A list of texts, or one as JSON."""
    listed = value
    if isinstance(value, str):
        try:
            listed = json.loads(value)
        except ValueError:
            pass
    if not isinstance(listed, list) or not all(isinstance(a, str) for a in listed):
        raise ValueError(f"{where} must be a list of text, got {_brief(value)}")
    return listed


def _answers(listed: Sequence[str], single: str) -> tuple[str, ...]:
    # Only spaces go: a TAB or a line feed at an end may be a `\t` or `\n`.
    given = (answer.strip(" ") for answer in (single, *listed) if answer.strip())
    return tuple(dict.fromkeys(a for a in given if a.lower() not in _NONE))


def _level(value: Any, where: str) -> int | None:
    text = str(value).strip()
    if isinstance(value, bool) or not isinstance(value, int | str):
        text = "no level"
    if _UNKNOWN_LEVEL.fullmatch(text):
        return None
    level = _LEVEL.fullmatch(text)
    if not level:
        raise ValueError(f"{where} must be a level 1 to 5 or null, got {value!r}")
    return int(level[1])


def _rate(value: Any, where: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise ValueError(f"{where} must be a rate in 0..1 or null, got {value!r}")
    return float(value)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _brief(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"
