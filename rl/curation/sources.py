"""Reading rows from JSONL, Parquet or a dataset on the Hugging Face hub.

A source is read twice: `inspect` hashes and validates all of it before any work is
done, so that a bad row stops the run while nothing is written; `read` streams it.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from rl.curation.row import Row, SourceError, parse_row

MAX_LINE_BYTES = 16 * 2**20
_BLOCK = 2**20
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
      path: a .jsonl or .parquet file; or `hf://ORG/NAME/FILE` (optionally
        `ORG/NAME@REVISION`), downloaded once to the hub's own cache. `~` and
        environment variables are expanded.
      name: defaults to the file's stem.
      fields: our field name -> the file's, where they differ.
      level_source: the scale that its levels are on.

    Raises:
      SourceError: the file is missing or of another kind, or the hub is out of reach.
    """
    local = pathlib.Path(_download(path) if path.startswith(_HUB) else _expand(path))
    if not local.is_file():
        raise SourceError(f"{local}: no such file")
    if local.suffix not in (".jsonl", ".parquet"):
        raise SourceError(f"{local}: must end in .jsonl or .parquet")
    return Source(
        name=name or local.stem,
        path=local,
        fields=dict(fields or {}),
        level_source=level_source,
    )


def inspect(source: Source) -> Inspected:
    """Hashes a source and validates all its rows.

    Raises:
      SourceError: the file is empty, or a row is malformed.
    """
    rows = sum(1 for _ in read(source))
    if not rows:
        raise SourceError(f"{source.path}: empty, no rows")
    digest = hashlib.sha256()
    with source.path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return Inspected(
        name=source.name,
        file=source.path.name,
        size=source.path.stat().st_size,
        rows=rows,
        sha256=digest.hexdigest(),
    )


def read(source: Source, start: int = 0) -> Iterator[Row]:
    """Rows in the file's order, from row `start` (0-based).

    Raises:
      SourceError: a row is malformed; the message names the file and the line.
    """
    records = _parquet if source.path.suffix == ".parquet" else _jsonl
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


def _jsonl(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            where = f"{path}:{number}"
            if len(line) > MAX_LINE_BYTES:
                raise SourceError(
                    f"{where}: a line of more than {MAX_LINE_BYTES // 2**20} MiB; is"
                    " this JSONL, one object per line?"
                )
            if not line.strip():
                continue
            try:
                yield where, json.loads(line.decode())
            except UnicodeDecodeError as error:
                byte, column = line[error.start], error.start + 1
                raise SourceError(
                    f"{where}: not UTF-8, byte 0x{byte:02x} in column {column}"
                ) from None
            except (json.JSONDecodeError, RecursionError) as error:
                reason = getattr(error, "msg", "nested too deeply")
                start = line[:60].decode(errors="replace")
                raise SourceError(f"{where}: not JSON ({reason}): {start!r}") from None


def _parquet(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise SourceError(
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
        raise SourceError(
            f"{path}: not Parquet: {str(error).splitlines()[0]}"
        ) from None


def _download(path: str) -> str:
    import huggingface_hub
    import huggingface_hub.errors

    parts = path.removeprefix(_HUB).split("/", 2)
    if len(parts) != 3:
        raise SourceError(f"{path}: must be hf://ORG/NAME/FILE")
    name, _, revision = parts[1].partition("@")
    try:
        return huggingface_hub.hf_hub_download(
            f"{parts[0]}/{name}",
            parts[2],
            repo_type="dataset",
            revision=revision or None,
        )
    except (huggingface_hub.errors.HfHubHTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise SourceError(f"{path}: cannot be had from the hub: {reason}") from None


def _expand(path: str) -> str:
    return os.path.expanduser(os.path.expandvars(path))
