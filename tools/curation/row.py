"""The row that curation works on, and the schema of the files it comes from."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tools.curation.formats import FIELDS, has, split, unwrapped

# What some sets write where they have no answer (NuminaMath-1.5).
_NONE = ("", "proof", "notfound")
_LEVEL = re.compile(r"(?:level\s*)?(?:([1-5])|\??)", re.I)
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


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Screened:
    """A row as its checks left it, and what later steps decide about it.

    Attributes:
      record: the repaired row, an object of our own schema without its solution.
      key: what exact duplicates share.
      bands: hashes by which near duplicates meet.
      reasons: reason -> evidence, for all that speaks against it, first that it counts
        under.
      beside: reason -> the problem that it was found beside, where there is one; under
        "repaired" the row as it came.
    """

    record: dict[str, Any]
    key: str
    bands: list[int]
    reasons: dict[str, str]
    beside: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def against(self, reason: str, evidence: str, other: dict[str, str]) -> None:
        """Notes that the row goes because of another problem, as `seen` shows it."""
        self.reasons[reason], self.beside[reason] = evidence, other

    @property
    def seen(self) -> dict[str, str]:
        """What a reader sees of it."""
        return seen(self.id, self.problem, self.answers)

    @property
    def survives(self) -> bool:
        """Whether nothing speaks against it so far."""
        return not self.reasons

    @property
    def id(self) -> str:
        return self.record["id"]

    @property
    def problem(self) -> str:
        """The question as text."""
        return self.record["problem"]

    @property
    def answers(self) -> list[str]:
        """Accepted gold answers."""
        return self.record["answers"]


def seen(id: str, problem: str, answers: Sequence[str]) -> dict[str, str]:
    """What a reader of the report sees of a problem."""
    return {"id": id, "problem": problem, "answer": " or ".join(answers)}


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
    raw, meta = split(record, fields)
    if raw["problem"] is None:
        raise ValueError(f"{where}: {fields['problem']!r} must be text, got null")
    values = {}
    for name in FIELDS:
        try:
            values[name] = _PARSERS.get(name, _text)(raw.get(name))
        except ValueError as error:
            raise ValueError(f"{where}: {fields[name]!r} {error}") from None
    answer, solution = values["answer"], values["solution"]
    if not solution and _WORKED.search(answer):
        answer, solution = "", answer
    answers = (answer, *values["answers"])
    # Only spaces go: a TAB or a line feed at an end may be a `\t` or `\n`.
    given = (each.strip(" ") for each in answers if each.strip().lower() not in _NONE)
    scale = level_source or values["level_source"] or values["source"] or source
    return Row(
        id=values["id"] or default_id,
        problem=unwrapped(values["problem"]),
        answers=tuple(dict.fromkeys(given)),
        source=values["source"] or source,
        level=values["level"],
        level_source=None if values["level"] is None else scale,
        solve_rate=values["solve_rate"],
        solution=solution,
        meta=meta,
    )


def _text(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"must be text, got {_brief(value)}")
    return value or ""


def _text_or_number(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        return _text(value)
    return str(int(value)) if value == int(value) else repr(value)


def _listed(value: Any) -> list[str]:
    """A list of texts, or one as JSON."""
    listed = value or []
    if isinstance(value, str):
        try:
            listed = json.loads(value)
        except ValueError:
            pass
    if not isinstance(listed, list) or not all(isinstance(a, str) for a in listed):
        raise ValueError(f"must be a list of text, got {_brief(value)}")
    return listed


def _level(value: Any) -> int | None:
    text = "" if value is None else str(value).strip()
    level = _LEVEL.fullmatch(text)
    if not level or isinstance(value, bool | float):
        raise ValueError(f"must be a level 1 to 5 or null, got {value!r}")
    return int(level[1]) if level[1] else None


def _rate(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value <= 1):
        raise ValueError(f"must be a rate in 0..1 or null, got {value!r}")
    return None if value is None else float(value)


def _brief(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "id": _text_or_number,
    "answer": _text_or_number,
    "answers": _listed,
    "level": _level,
    "solve_rate": _rate,
}
