"""Reads rows from JSONL, JSON or Parquet files, also on the Hugging Face Hub."""

import collections
import contextlib
import dataclasses
import itertools
import json
import math
import pathlib
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from configs.schema import call
from rl.files import damaged, fetched, read_rows, sha256
from tools.curation import formats
from tools.curation.evidence import BULKY, RATES, Evidence, read_evidence
from tools.curation.row import Row
from tools.curation.sets import unwrap
from tools.page import is_number

_NONE = ("", "proof", "notfound")  # placeholders without an answer in NuminaMath-1.5
_LEVEL = re.compile(r"(?:level\s*)?(?:([1-5])|\??)", re.I)
_WORKED = re.compile(r"\n#### *(?=\S)")  # answers of GSM8K contain the solution
_MUST_BE = {
    "answers": "a list of text",
    "level": "a level 1 to 5 or null",
    "solve_rate": "a rate in 0..1 or null",
}


@dataclasses.dataclass(kw_only=True)
class Source:
    """Describes a .jsonl, .json or .parquet file and how to read it.

    Raises:
      ValueError: the file, its first row, `fields` or `evidence` is not valid.
      OSError: the file cannot be read.
    """

    path: str  # local file, or hf://OWNER/DATASET[@REVISION]/FILE
    # Paths such as `prompt[0].content` by field; empty to detect the format.
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Scale of the levels; None: the row's `level_source`, or else the name of its set.
    level_source: str | None = None
    # Fields of an `Evidence` that holds for all rows, from the set's documentation.
    evidence: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Where the golds were made; equal golds of two origins are evidence.
    origin: str = ""
    stated: Sequence[Evidence] = dataclasses.field(init=False, default=())
    file: pathlib.Path = dataclasses.field(init=False)  # local copy
    format: str = dataclasses.field(init=False)  # name of the format, or "fields"
    paths: Mapping[str, str] = dataclasses.field(init=False)  # of all fields

    def __post_init__(self) -> None:
        try:
            if self.evidence:
                self.stated = [call(Evidence, "sources.evidence", self.evidence)]
            fields = formats.all_fields(self.fields or {})
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None
        self.file = fetched(self.path)
        if not self.file.is_file():
            wrong = "is a folder" if self.file.is_dir() else "no such file"
            raise ValueError(
                f"{self.file}: {wrong}; give a file in config.sources or --input"
            )
        if self.file.suffix not in (".jsonl", *_LOADERS):
            raise ValueError(f"{self.file}: must end in .jsonl, .json or .parquet")
        if self.fields:
            self.format, self.paths = "fields", fields
        elif first := next(self.records(), None):
            self.format, self.paths = formats.find_format(*first)
        else:
            raise ValueError(f"{self.file}: empty, no rows; give a file with rows")

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields (file and row number for messages, JSON object) for each row."""
        if self.file.suffix == ".jsonl":
            yield from read_rows(self.file)
            return
        for number, row in enumerate(_LOADERS[self.file.suffix](self.file), 1):
            row = {formats.TURNS: row} if isinstance(row, list) else row
            if not isinstance(row, dict):
                kind = type(row).__name__
                raise ValueError(
                    f"{self.file} row {number}: must be a JSON object or a list of chat"
                    f" turns, not {kind}"
                )
            yield f"{self.file} row {number}", row

    def facts(self, rows: int) -> dict[str, Any]:
        """Returns the source's entry in summary.json."""
        return {
            "name": self.file.stem,
            "file": self.file.name,
            "format": self.format,
            "size": self.file.stat().st_size,
            "rows": rows,
            "sha256": sha256(self.file),
        }


def check_output(sources: Iterable[Source], *outputs: pathlib.Path) -> None:
    """Raises ValueError if an output would replace the file of a source."""
    for source, path in itertools.product(sources, outputs):
        if path.exists() and path.samefile(source.file):
            raise ValueError(
                f"{path}: is an input, which would be replaced; give another --out"
            )


def read(source: Source) -> list[Row]:
    """Reads the rows of a file, with evidence and without shared text (`unwrap`).

    Raises ValueError if a row is not valid.
    """
    rows = []
    sets = collections.defaultdict(list)
    for index, (where, record) in enumerate(source.records()):
        row = _row(source, record, where, f"{source.file.stem}-{index}")
        row.evidence = read_evidence(record, row.answers, row.source)
        row.evidence += source.stated
        rates = [one.rate for one in row.evidence if one.kind in RATES]
        row.solve_rate = rates[0] if rates else row.solve_rate
        rows.append(row)
        sets[row.source].append(row)
    for some in sets.values():
        for row, text in zip(some, unwrap([r.problem for r in some]), strict=True):
            row.problem = text
    return rows


def _row(source: Source, record: dict[str, Any], where: str, id: str) -> Row:
    values: dict[str, Any] = {}
    for name, path in source.paths.items():
        if formats.has(record, path):
            value = formats.at(record, path)
            if value is not None or name == "problem":
                values[name] = _value(name, value, f"{where}: {path!r}")
        elif name in ("problem", *source.fields):
            have = formats.columns(record)
            raise ValueError(
                f"{where}: no field {path!r} (columns: {have}); correct the row,"
                " config.sources[].fields or --fields"
            )
    used = {"meta", *BULKY, *map(formats.root, source.paths.values())}
    own = record.get("meta")
    meta = dict(own) if isinstance(own, Mapping) else {}
    meta |= {name: value for name, value in record.items() if name not in used}
    answer = values.pop("answer", "")
    if not values.get("solution") and _WORKED.search(answer):
        values["solution"], answer = answer, ""
    # Only spaces are removed: a final TAB or line feed may be a damaged TeX command.
    answers = [one.strip(" ") for one in (answer, *values.pop("answers", ()))]
    answers = [one for one in answers if one.strip().lower() not in _NONE]
    set_name = values.get("source") or source.file.stem
    scale = source.level_source or values.get("level_source") or set_name
    changed = {
        "id": values.get("id") or id,
        "answers": tuple(dict.fromkeys(answers)),
        "source": set_name,
        "level_source": None if values.get("level") is None else scale,
        "origin": source.origin,
    }
    return Row(**values | changed, meta=meta)


def _value(name: str, value: Any, where: str) -> Any:
    if name in ("answer", "answers") and isinstance(value, str) and value[:1] == "[":
        with contextlib.suppress(ValueError):  # list as text
            listed = json.loads(value.replace("'", '"') if name == "answer" else value)
            match name, listed:
                case ("answers", _) | ("answer", [str()]):
                    value = listed
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


def _json(path: pathlib.Path) -> list[Any]:
    with damaged(path, "give a file with valid JSON"):
        rows = json.loads(path.read_text("utf-8"))
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
            # Of float32 columns, the fewest decimals: 0.1, and not 0.10000000149011612.
            columns = [
                c.cast("string").cast("double") if c.type == "float" else c
                for c in batch.columns
            ]
            names = batch.schema.names
            for row in pyarrow.RecordBatch.from_arrays(columns, names).to_pylist():
                yield json.loads(json.dumps(row, default=_text))
    except pyarrow.ArrowException as error:
        raise ValueError(
            f"{path}: not Parquet that pyarrow can read"
            f" ({str(error).splitlines()[0]}); download or write it again"
        ) from None


def _text(value: Any) -> str:
    """Converts a value that JSON does not have, such as a date or a Decimal."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


_LOADERS = {".json": _json, ".parquet": _parquet}
