"""Curates raw data into verifiable problems, with a report.

    python -m tools.curate --config=configs/curate.py --out DIR
    python -m tools.curate --config=configs/curate.py --out DIR --input A.json,B.parquet
    python -m tools.curate ... --input A.jsonl --fields problem=ask,answer=gold.text[0]

The command writes problems.jsonl, dropped.jsonl, report.md, report.html and
summary.json into DIR. The same command on the same files writes the same bytes.
"""

import os
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import app, flags

from configs.reading import (
    Parser,
    comma_separated,
    define_config,
    output_file,
    output_folder,
    parse_flags,
)
from configs.schema import call
from rl.processes.stopping import StopSignals
from tools import command
from tools.curation.formats import parse_fields
from tools.curation.pipeline import curate
from tools.curation.sets import most

_CONFIG = define_config("sources and settings of curation", default="configs/curate.py")
_OUT = flags.DEFINE(Parser(output_folder), "out", None, "output folder", required=True)
_INPUT = flags.DEFINE_multi_string(
    "input",
    [],
    "JSONL, JSON or Parquet files, separated by commas, in place of the config's"
    " sources",
)
_FIELDS = flags.DEFINE_string(
    "fields",
    "",
    "columns of --input files of another format: problem=COLUMN,answer=COLUMN.key[0]",
)
_JSON = flags.DEFINE(Parser(output_file), "json", None, "also write the summary")
_ROOT = pathlib.Path(__file__).resolve().parents[1]


def main(argv: Sequence[str]) -> None:
    os.environ.setdefault("SHARED_DATA", str(_ROOT.parent / "shared" / "data"))
    sys.exit(command.run_stoppable(_curate, _JSON.value))


def _curate(_: StopSignals) -> dict[str, Any]:
    inputs = [name for text in _INPUT.value for name in comma_separated(text)]
    fields = parse_fields(_FIELDS.value)
    if fields and not inputs:
        raise ValueError(f"--fields={_FIELDS.value}: requires --input")
    config = _CONFIG.value.to_dict()
    if inputs:
        config["sources"] = [{"path": p, "fields": fields} for p in inputs]
    summary = call(curate, "", config, out=_OUT.value)
    for line in lost(summary):
        print(f"WARNING: {line}")
    print(
        f"kept {summary['kept']:,} of {summary['rows']:,} rows,"
        f" {summary['with_level']:,} with a level; see {_OUT.value / 'report.html'}"
    )
    return summary


def lost(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields a warning for each reason that drops over half of a source's rows.

    Duplicates and missing evidence cause no warning, nor do sources with under 10 rows,
    unless no row is kept.
    """
    if not summary["kept"]:
        entries = summary["reasons"].items()
        reason, entry = max(entries, key=lambda item: item[1]["counted"])
        advice = "correct the rows"
        if entry["step"] == "evidence":
            advice = "set config.evidence='preferred' for data without evidence"
        counted = f"{entry['counted']:,} of {summary['rows']:,} rows"
        yield f"no row is kept; the main reason is {reason} ({counted}); {advice}"
    for source, counts in summary["by_source"].items():
        rows = counts["rows"]
        for reason, n in counts["reasons"].items():
            entry = summary["reasons"][reason]
            if entry["step"] not in ("duplicates", "evidence") and most(n, rows):
                action = "check its fields (config.sources or --fields)"
                if entry["step"] == "decontamination":
                    action = "remove this source: it resembles an evaluation set"
                yield f"{source}: {reason} drops {n:,} of {rows:,} rows; {action}"


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
