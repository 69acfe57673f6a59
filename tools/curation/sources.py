"""Reading rows from JSONL, Parquet or a dataset on the Hugging Face hub.

A source is read twice: `inspect` hashes and validates all of it before any work is
done, so that a bad row stops the run while nothing is written; `read` streams it.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from rl.files import download, read_rows, sha256
from tools.curation.row import Row, parse_row

_HUB = "hf://"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from.

    Attributes:
      name: written to rows that do not say their source.
      path: a .jsonl or .parquet file.
      fields: our field name -> the file's, where they differ.
      level_source: the scale of its levels; None: the row's own, else its source.
    """

    name: str
    path: pathlib.Path
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    level_source: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What a source holds: its name, file name, size in bytes and rows, and sha256."""

    name: str
    file: str
    size: int
    rows: int
    sha256: str


def make_source(
    *,
    path: str,
    name: str = "",
    fields: Mapping[str, str] | None = None,
    level_source: str | None = None,
) -> Source:
    """A source from its configuration.

    Args:
      path: a .jsonl or .parquet file; or `hf://OWNER/DATASET/FILE` (optionally
        `OWNER/DATASET@REVISION`), downloaded once to the hub's own cache. `~` and
        environment variables are expanded.
      name: defaults to the file's stem.
      fields: our field name -> the file's, where they differ.
      level_source: the scale that its levels are on.

    Raises:
      ValueError: the file is missing or of another kind, or the hub is out of reach.
    """
    expanded = pathlib.Path(os.path.expandvars(path)).expanduser()
    local = download(path) if path.startswith(_HUB) else expanded
    if not local.is_file():
        raise ValueError(f"{local}: no such file")
    if local.suffix not in (".jsonl", ".parquet"):
        raise ValueError(f"{local}: must end in .jsonl or .parquet")
    return Source(
        name=name or local.stem,
        path=local,
        fields=dict(fields or {}),
        level_source=level_source,
    )


def inspect(source: Source) -> Inspected:
    """Hashes a source and validates all its rows.

    Raises:
      ValueError: the file is empty, or a row is malformed.
    """
    rows = sum(1 for _ in read(source))
    if not rows:
        raise ValueError(f"{source.path}: empty, no rows")
    return Inspected(
        name=source.name,
        file=source.path.name,
        size=source.path.stat().st_size,
        rows=rows,
        sha256=sha256(source.path),
    )


def read(source: Source, start: int = 0) -> Iterator[Row]:
    """Rows in the file's order, from row `start` (0-based).

    Raises:
      ValueError: a row is malformed; the message names the file and the line.
    """
    records = _parquet if source.path.suffix == ".parquet" else read_rows
    for index, (where, record) in enumerate(records(source.path)):
        if index >= start:
            yield parse_row(
                record,
                where=where,
                fields=source.fields,
                default_id=f"{source.name}-{index}",
                source=source.name,
                level_source=source.level_source,
            )


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
