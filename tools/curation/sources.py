"""Reading rows from JSONL, JSON, Parquet or a dataset on the Hugging Face hub.

A source is read twice: `inspect` hashes and validates all of it before any work is
done, so that a bad row stops the run while nothing is written; `read` streams it.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from rl.files import download, read_rows, sha256
from tools.curation.formats import TURNS, all_fields, find_format
from tools.curation.row import Row, parse_row

_HUB = "hf://"


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
    fields: Mapping[str, str] | None = dataclasses.field(default_factory=dict)
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
        fields = self.fields or {}
        all_fields(fields)
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "file", file)
        object.__setattr__(self, "name", self.name or file.stem)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What a source holds: its format, size in bytes and rows, and sha256."""

    name: str
    file: str
    format: str
    size: int
    rows: int
    sha256: str


def inspect(source: Source) -> Inspected:
    """Hashes a source and validates all its rows.

    Raises:
      ValueError: the file is empty, or a row is malformed.
    """
    rows = sum(1 for _ in read(source))
    if not rows:
        raise ValueError(f"{source.file}: empty, no rows")
    return Inspected(
        name=source.name,
        file=source.file.name,
        format=_format(source)[0],
        size=source.file.stat().st_size,
        rows=rows,
        sha256=sha256(source.file),
    )


def read(source: Source, start: int = 0) -> Iterator[Row]:
    """Rows in the file's order, from row `start` (0-based).

    Raises:
      ValueError: a row is malformed; the message names the file and the line.
    """
    _, fields = _format(source)
    required = {"problem", *source.fields}
    for index, (where, record) in enumerate(_records(source.file)):
        if index >= start:
            yield parse_row(
                record,
                where=where,
                fields=fields,
                required=required,
                default_id=f"{source.name}-{index}",
                source=source.name,
                level_source=source.level_source,
            )


def _format(source: Source) -> tuple[str, dict[str, str]]:
    """The name of its format and the paths of our fields, by its first row."""
    if source.fields:
        return "fields", all_fields(source.fields)
    for where, record in _records(source.file):
        return find_format(record, where)
    return "problems", all_fields({})


def _records(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    return _READERS[path.suffix](path)


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


def _kind(value: Any) -> str:
    return type(value).__name__


def _parquet(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"{path}: Parquet needs pyarrow: pip install -r requirements-data.txt"
        ) from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        number = 0
        for batch in file.iter_batches(batch_size=1024):
            for record in batch.to_pylist():
                number += 1
                yield f"{path} row {number}", record
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not Parquet: {str(error).splitlines()[0]}") from None


_READERS = {".jsonl": read_rows, ".json": _json, ".parquet": _parquet}
