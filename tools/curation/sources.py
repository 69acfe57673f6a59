"""Reads rows from JSONL, JSON, Parquet or a dataset on the Hugging Face Hub.

`inspect` hashes and validates all of a source before any work is done, so that a bad
row stops the run while nothing is written; `read` learns what its sets share first.
"""

import collections
import contextlib
import dataclasses
import json
import math
import pathlib
import re
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from rl.files import fetched, read_rows, sha256
from tools.curation import formats
from tools.curation.evidence import BULKY, RATES, Evidence, read_evidence
from tools.curation.row import Row
from tools.curation.sets import Wrapper
from tools.page import is_number

_NONE = ("", "proof", "notfound")  # without an answer, as in NuminaMath-1.5
_LEVEL = re.compile(r"(?:level\s*)?(?:([1-5])|\??)", re.I)
_WORKED = re.compile(r"\n#### *(?=\S)")  # the solution as the answer, as in GSM8K
_MUST_BE = {
    "answers": "a list of text",
    "level": "a level 1 to 5 or null",
    "solve_rate": "a rate in 0..1 or null",
}


@dataclasses.dataclass(kw_only=True)
class Source:
    """Names a .jsonl, .json or .parquet file and how to read it.

    `~` and environment variables in its path are expanded, and it may be
    `hf://OWNER/DATASET/FILE` or `hf://OWNER/DATASET@REVISION/FILE`.

    Raises:
      ValueError: the file is missing or of another kind, or the hub is out of reach; it
        is empty, the first row's format is unknown, or a field is.
    """

    path: str
    # field -> its path in a row, as `prompt[0].content`; empty: the format's
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    level_source: str | None = None  # the scale of its levels; None: the row's own
    # What the set's documentation says of every row, as the fields of `Evidence`.
    evidence: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Where its golds were made; rows of two origins with one answer are evidence.
    origin: str = ""
    file: pathlib.Path = dataclasses.field(init=False)  # on this machine
    format: str = dataclasses.field(init=False)  # its name, by the first row
    paths: Mapping[str, str] = dataclasses.field(init=False)  # of all fields

    def __post_init__(self) -> None:
        if self.evidence:
            try:
                Evidence(**self.evidence)
            except TypeError as error:
                raise ValueError(f"{self.path}: evidence: {error}") from None
        self.file = fetched(self.path)
        if not self.file.is_file():
            raise ValueError(f"{self.file}: no such file")
        if self.file.suffix not in (".jsonl", *_LOADERS):
            raise ValueError(f"{self.file}: must end in .jsonl, .json or .parquet")
        if self.fields:
            self.format, self.paths = "fields", formats.all_fields(self.fields)
        elif first := next(self.records(), None):
            self.format, self.paths = formats.find_format(*first)
        else:
            raise ValueError(f"{self.file}: empty, no rows")

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields file and place, for messages, and object of each row."""
        if self.file.suffix == ".jsonl":
            yield from read_rows(self.file)
            return
        for number, row in enumerate(_LOADERS[self.file.suffix](self.file), 1):
            row = {formats.TURNS: row} if isinstance(row, list) else row
            if not isinstance(row, dict):
                kind = type(row).__name__
                raise ValueError(f"{self.file} row {number}: must be an object: {kind}")
            yield f"{self.file} row {number}", row


def inspect(source: Source) -> dict[str, Any]:
    """Returns name, file, format, bytes, rows and sha256; ValueError: a row is bad."""
    return {
        "name": source.file.stem,
        "file": source.file.name,
        "format": source.format,
        "size": source.file.stat().st_size,
        "rows": sum(1 for _ in _rows(source)),
        "sha256": sha256(source.file),
    }


def read(source: Source) -> Iterator[Row]:
    """Yields rows in the file's order, without wrappers and with evidence."""
    sets = collections.defaultdict(list)
    for row, _ in _rows(source):
        sets[row.source].append(row.problem)
    wrappers = {name: Wrapper(problems) for name, problems in sets.items()}
    for row, record in _rows(source):
        row = wrappers[row.source].remove(row)
        evidence = read_evidence(record, row.answers, row.source)
        if source.evidence:
            evidence.append(Evidence(**source.evidence))
        rates = [one.rate for one in evidence if one.kind in RATES]
        rate = rates[0] if rates else row.solve_rate
        yield dataclasses.replace(row, evidence=evidence, solve_rate=rate)


def _rows(source: Source) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yields rows as they are in the file, each with its record."""
    for index, (where, record) in enumerate(source.records()):
        yield _row(source, record, where, f"{source.file.stem}-{index}"), record


def _row(source: Source, record: dict[str, Any], where: str, id: str) -> Row:
    values: dict[str, Any] = {}
    for name, path in source.paths.items():
        if formats.has(record, path):
            value = formats.at(record, path)
            if value is not None or name == "problem":
                values[name] = _value(name, value, f"{where}: {path!r}")
        elif name in ("problem", *source.fields):
            have = formats.columns(record)
            raise ValueError(f"{where}: no field {path!r} (it has: {have})")
    used = {"meta", *BULKY, *map(formats.root, source.paths.values())}
    own = record.get("meta")
    meta = dict(own) if isinstance(own, Mapping) else {}
    meta |= {name: value for name, value in record.items() if name not in used}
    answer = values.pop("answer", "")
    if not values.get("solution") and _WORKED.search(answer):
        values["solution"], answer = answer, ""
    # Only spaces go: a TAB or a line feed at an end may be a `\t` or `\n`.
    answers = [one.strip(" ") for one in (answer, *values.pop("answers", ()))]
    answers = [one for one in answers if one.strip().lower() not in _NONE]
    whose = values.get("source") or source.file.stem
    scale = source.level_source or values.get("level_source") or whose
    changed = {
        "id": values.get("id") or id,
        "answers": tuple(dict.fromkeys(answers)),
        "source": whose,
        "level_source": None if values.get("level") is None else scale,
        "origin": source.origin,
    }
    return Row(**values | changed, meta=meta)


def _value(name: str, value: Any, where: str) -> Any:
    """Converts the value of one field."""
    if name in ("answer", "answers") and isinstance(value, str) and value[:1] == "[":
        with contextlib.suppress(ValueError):  # a list as text, in JSON or Python
            listed = json.loads(value.replace("'", '"') if name == "answer" else value)
            value = listed if name == "answers" or _is_one_text(listed) else value
    match name:
        case "level":
            text = f"{value:g}" if is_number(value) else str(value).strip()
            if level := _LEVEL.fullmatch(text):
                return int(level[1]) if level[1] else None
        case "solve_rate" if is_number(value) and 0 <= value <= 1:
            return float(value)
        case "answers" if isinstance(value, list):
            return [_value("answer", each, where) for each in value]
        case "answer" if isinstance(value, list) and len(value) == 1:
            return _value(name, value[0], where)
        case "id" | "answer" if is_number(value) and math.isfinite(value):
            return repr(int(value) if value == int(value) else value)
        case _ if isinstance(value, str) and name not in ("answers", "solve_rate"):
            return value
    wanted = _MUST_BE.get(name, "text")
    raise ValueError(f"{where} must be {wanted}, got {reprlib.repr(value)}")


def _is_one_text(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)


def _json(path: pathlib.Path) -> list[Any]:
    try:
        rows = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    return rows if isinstance(rows, list) else [rows]


def _parquet(path: pathlib.Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"{path}: Parquet needs pyarrow: pip install -r requirements-data.txt"
        ) from None
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024):
            yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not Parquet: {str(error).splitlines()[0]}") from None


_LOADERS = {".json": _json, ".parquet": _parquet}
