"""Reading rows from JSONL, JSON, Parquet or a dataset on the Hugging Face hub.

A source is read twice: `inspect` hashes and validates all of it before any work is
done, so that a bad row stops the run while nothing is written; `read` streams it.
"""

import dataclasses
import json
import math
import os
import pathlib
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl.files import download, read_rows, sha256
from tools.curation.formats import (
    FIELDS,
    TURNS,
    all_fields,
    find_format,
    has,
    split,
    unwrapped,
)
from tools.curation.row import Row

_HUB = "hf://"
# What some sets write where they have no answer (NuminaMath-1.5).
_NONE = ("", "proof", "notfound")
_LEVEL = re.compile(r"(?:level\s*)?(?:([1-5])|\??)", re.I)
# The worked solution that stands in the answer's place, as in GSM8K.
_WORKED = re.compile(r"\n#### *(?=\S)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from.

    Attributes:
      path: a .jsonl, .json or .parquet file; or `hf://OWNER/DATASET/FILE` (optionally
        `OWNER/DATASET@REVISION`), downloaded once to the hub's own cache. `~` and
        environment variables are expanded.
      name: written to rows that do not say their source; by default the file's stem.
      fields: our field name -> its path in a row, as `prompt[0].content`; empty: the
        format's (see `formats`).
      level_source: the scale of its levels; None: the row's own, else its source.
      file: where `path` lies on this machine.

    Raises:
      ValueError: the file is missing or of another kind, or the hub is out of reach.
    """

    path: str
    name: str = ""
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    level_source: str | None = None
    file: pathlib.Path = dataclasses.field(init=False)

    def __post_init__(self):
        file = pathlib.Path(os.path.expandvars(self.path)).expanduser()
        if self.path.startswith(_HUB):
            file = download(self.path)
        if not file.is_file():
            raise ValueError(f"{file}: no such file")
        if file.suffix not in _READERS:
            raise ValueError(f"{file}: must end in .jsonl, .json or .parquet")
        object.__setattr__(self, "file", file)
        object.__setattr__(self, "name", self.name or file.stem)

    def records(self) -> Iterator[tuple[str, Any]]:
        """File and place, for messages, and object of each row."""
        return _READERS[self.file.suffix](self.file)

    def format(self) -> tuple[str, dict[str, str]]:
        """The name of its format and the paths of our fields, by its first row.

        Raises:
          ValueError: it has no row, the first is in no known format, or a field is
            none of ours.
        """
        if self.fields:
            return "fields", all_fields(self.fields)
        for where, record in self.records():
            return find_format(record, where)
        raise ValueError(f"{self.file}: empty, no rows")


def inspect(source: Source) -> dict[str, Any]:
    """Hashes a source and validates all its rows.

    Returns:
      Its name, file and format, its size in bytes and in rows, and its sha256.

    Raises:
      ValueError: the file is empty, or a row is malformed.
    """
    return {
        "name": source.name,
        "file": source.file.name,
        "format": source.format()[0],
        "size": source.file.stat().st_size,
        "rows": sum(1 for _ in read(source)),
        "sha256": sha256(source.file),
    }


def read(source: Source) -> Iterator[Row]:
    """Rows in the file's order.

    Raises:
      ValueError: a row is malformed; the message names the file and the line.
    """
    _, fields = source.format()
    for index, (where, record) in enumerate(source.records()):
        yield _row(source, record, fields, where, f"{source.name}-{index}")


def _row(
    source: Source, record: dict[str, Any], fields: dict[str, str], where: str, id: str
) -> Row:
    for name in ("problem", *source.fields):
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
    scales = (source.level_source, values["level_source"], values["source"])
    scale = next(filter(None, scales), source.name)
    return Row(
        id=values["id"] or id,
        problem=unwrapped(values["problem"]),
        answers=tuple(dict.fromkeys(given)),
        source=values["source"] or source.name,
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
    if _is_number(value) and math.isfinite(value):
        value = repr(int(value) if value == int(value) else value)
    return _text(value)


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
    if value is not None and not (_is_number(value) and 0 <= value <= 1):
        raise ValueError(f"must be a rate in 0..1 or null, got {value!r}")
    return None if value is None else float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    return type(value).__name__


def _brief(value: Any) -> str:
    return f"{_kind(value)} {reprlib.repr(value)}"


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "id": _text_or_number,
    "answer": _text_or_number,
    "answers": _listed,
    "level": _level,
    "solve_rate": _rate,
}


def _json(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    try:
        rows = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(rows, list):
        raise ValueError(f"{path}: must hold a list of rows, not {_kind(rows)}")
    for number, row in enumerate(rows, 1):
        row = {TURNS: row} if isinstance(row, list) else row
        if not isinstance(row, dict):
            raise ValueError(
                f"{path} row {number}: must be an object, not {_kind(row)}"
            )
        yield f"{path} row {number}", row


def _parquet(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"{path}: Parquet needs pyarrow: pip install -r requirements-data.txt"
        ) from None
    try:
        batches = pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024)
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, row in enumerate(rows, 1):
            yield f"{path} row {number}", row
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not Parquet: {str(error).splitlines()[0]}") from None


_READERS = {".jsonl": read_rows, ".json": _json, ".parquet": _parquet}
