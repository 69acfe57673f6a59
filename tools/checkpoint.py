"""Lists, verifies and prunes the checkpoints of a run.

python -m tools.checkpoint list WORKDIR              steps, sizes, reasons to retain
python -m tools.checkpoint verify WORKDIR            reads every byte; exit 1 on damage
python -m tools.checkpoint prune WORKDIR [--keep N]  retains the N newest, the last
                                                     healthy and the best step
"""

import argparse
import contextlib
import datetime
import pathlib
import sys
import time
from typing import Any

from configs.reading import user_path
from rl import checkpoint, files
from rl.checksums import (
    SUMS,
    CorruptCheckpointError,
    read_loop,
    read_record,
    steps_in,
    verify,
)
from tools import command


def main(argv: list[str] | None = None) -> int:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    add("action", choices=("list", "verify", "prune"))
    add("workdir", type=user_path, metavar="WORKDIR")
    text = "number of newest checkpoints to retain (default 1)"
    add("--keep", type=int, default=1, metavar="N", help=text)
    arguments = parser.parse_args(argv)
    return command.run(
        _act,
        arguments,
        failed=lambda result: (
            arguments.action == "verify"
            and any(row["damage"] for row in result["checkpoints"])
        ),
    )


def _act(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = arguments.workdir / "checkpoints"
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: no such folder; give the workdir of a run with a checkpoint"
        )
    if arguments.keep < 1:
        raise ValueError(f"--keep {arguments.keep}: must be at least 1")
    rows = _rows(folder, arguments.keep, every_byte=arguments.action == "verify")
    removed = []
    if arguments.action == "prune":
        removed = _prune(arguments.workdir, rows)
        rows = [row for row in rows if row["name"] not in removed]
        print("removed: " + (", ".join(removed) or "nothing"))
    for row in rows:
        print(_line(row, verified=arguments.action == "verify"))
    if not rows:
        print(f"{folder}: no checkpoints")
    return {"checkpoints": rows, "removed": removed}


def _rows(folder: pathlib.Path, keep: int, *, every_byte: bool) -> list[dict[str, Any]]:
    """Describes each checkpoint; reads all files only if `every_byte`."""
    records = checkpoint.records_in(folder)
    kept = checkpoint.retained_steps(records, keep)
    rows = []
    for step in sorted(steps_in(folder)):
        path = folder / str(step)
        nbytes, damage = _examine(path, every_byte)
        if damage:  # unless it is being deleted
            time.sleep(1)
            nbytes, damage = _examine(path, every_byte)
        if not path.is_dir():
            continue
        record, saved = records.get(step), None
        with contextlib.suppress(FileNotFoundError):
            seconds = (path / SUMS).stat().st_mtime
            saved = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        row = {
            "name": str(step),
            "step": step,
            "bytes": nbytes,
            "saved": saved and saved.isoformat(),
            "kept": kept.get(step, []),
            "damage": damage,
        }
        of_record = ("updates", "healthy", "score")
        rows.append(row | {key: record and getattr(record, key) for key in of_record})
    return rows


def _examine(path: pathlib.Path, every_byte: bool) -> tuple[int, str | None]:
    """Returns the size of a checkpoint and its damage, if any."""
    nbytes = 0
    try:
        nbytes = checkpoint.size_of(path)
        stored = read_record(path)
        if every_byte:
            verify(path)
            read_loop(path, stored)
    except (CorruptCheckpointError, FileNotFoundError) as error:
        return nbytes, str(error)
    return nbytes, None


def _prune(workdir: pathlib.Path, rows: list[dict[str, Any]]) -> list[str]:
    """Removes steps that are not retained, unfinished saves and `*.damaged` folders.

    A step with a damaged record stays. Returns the names of the removed folders.
    """
    folder = workdir / "checkpoints"
    with files.locked(workdir):
        removed = [r["name"] for r in rows if not r["kept"] and not r["damage"]]
        removed += [p.name for p in folder.glob(checkpoint.UNFINISHED)]
        removed += [p.name for p in folder.glob(f"*{checkpoint.DAMAGED}")]
        for name in removed:
            checkpoint.remove(folder / name)
    return removed


def _line(row: dict[str, Any], *, verified: bool) -> str:
    if row["damage"]:
        return f"step {row['step']}: DAMAGED: {row['damage']}"
    parts = [
        f"step {row['step']}",
        f"{row['updates']:,} updates",
        checkpoint.format_size(row["bytes"]),
        (row["saved"] or "no checksums")[:19],
        "healthy" if row["healthy"] else "unhealthy",
    ]
    if row["score"] is not None:
        parts.append(f"score {row['score']:.3f}")
    parts.append("retained: " + ", ".join(row["kept"]) if row["kept"] else "prunable")
    return " | ".join(parts) + (" | intact" if verified else "")


if __name__ == "__main__":
    sys.exit(main())
