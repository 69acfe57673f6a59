"""Curates raw data into verifiable problems, with a report.

    python -m tools.curate --config=configs/curate.py --out DIR
    python -m tools.curate --config=configs/curate.py --out DIR --input A.jsonl,B.jsonl

Writes problems.jsonl, dropped.jsonl, report.md, report.html and summary.json into DIR.
Interrupted, the same command goes on where it stopped; the same command over the same
files writes the same bytes.
"""

import json
import os
import pathlib
import sys

from absl import app, flags
from ml_collections import config_flags

from rl.curation.build import make_plan
from rl.curation.pipeline import curate
from rl.curation.row import SourceError

_CONFIG = config_flags.DEFINE_config_file("config", "configs/curate.py")
_OUT = flags.DEFINE_string("out", None, "folder to write to", required=True)
_INPUT = flags.DEFINE_list(
    "input", None, "JSONL or Parquet files that replace the configuration's sources"
)
_JSON = flags.DEFINE_string("json", None, "also write the summary to this file")
_ROOT = pathlib.Path(__file__).resolve().parents[1]


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        sys.exit(f"curate: unexpected argument {argv[1]!r}")
    os.environ.setdefault("SHARED_DATA", str(_ROOT.parent / "shared" / "data"))
    out = pathlib.Path(_OUT.value)
    try:
        plan = make_plan(_CONFIG.value, inputs=_INPUT.value)
        summary = curate(plan, out)
    except (SourceError, ValueError, OSError) as error:
        sys.exit(f"curate: {error}")
    except KeyboardInterrupt:
        sys.exit("curate: interrupted; the same command goes on from here")
    if _JSON.value:
        text = json.dumps(summary, indent=2, ensure_ascii=False)
        pathlib.Path(_JSON.value).write_text(text + "\n")
    print(
        f"kept {summary['kept']:,} of {summary['rows']:,} rows,"
        f" {summary['with_level']:,} with a level; see {out / 'report.html'}"
    )


if __name__ == "__main__":
    app.run(main)
