"""The checkpoints of a run: what is there, whether it is whole, and what may go.

python -m tools.checkpoint list WORKDIR              steps, sizes, why each is kept
python -m tools.checkpoint verify WORKDIR            reads every byte; exit 1 on damage
python -m tools.checkpoint prune WORKDIR [--keep N]  removes all but the N newest, the
                                                     last healthy and the best one
"""

import argparse
import pathlib
import sys
from typing import Any

from configs.reading import user_path
from rl import checkpoint, files
from rl.workdir.proof import Damaged, read_proof, verify


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("list", "verify", "prune"))
    parser.add_argument("workdir", type=user_path, metavar="WORKDIR")
    parser.add_argument(
        "--keep", type=int, default=1, metavar="N", help="newest that stay (prune)"
    )
    parser.add_argument("--json", type=user_path, metavar="OUT", help="write here")
    arguments = parser.parse_args(argv)
    try:
        result = _act(arguments)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    if arguments.json:
        files.replace_json(arguments.json, result)
    damaged = [row for row in result["checkpoints"] if row["damage"]]
    sys.exit(1 if arguments.action == "verify" and damaged else 0)


def _act(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = arguments.workdir / "checkpoints"
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    if arguments.keep < 1:
        raise ValueError(f"--keep {arguments.keep}: must be at least 1")
    rows = _rows(folder, arguments.keep, whole=arguments.action == "verify")
    removed = []
    if arguments.action == "prune":
        removed = _prune(arguments.workdir, rows)
        rows = [row for row in rows if row["name"] not in removed]
        print("removed: " + (", ".join(removed) or "nothing"))
    for row in rows:
        print(_line(row, verified=arguments.action == "verify"))
    if not rows:
        print(f"{folder}: holds no checkpoint")
    return {"checkpoints": rows, "removed": removed}


def _rows(folder: pathlib.Path, keep: int, *, whole: bool) -> list[dict[str, Any]]:
    """What is known of each checkpoint; damage of any file only if `whole` asks."""
    proofs = checkpoint.proofs_in(folder)
    kept = checkpoint.kept_steps(proofs, keep)
    rows = []
    for step in sorted(checkpoint.steps_in(folder)):
        damage = None
        try:
            look = verify if whole else read_proof
            look(folder / str(step))
        except Damaged as error:
            damage = str(error)
        proof = proofs.get(step)
        rows.append(
            {
                "name": str(step),
                "step": step,
                "updates": proof and proof.updates,
                "bytes": proof and proof.bytes,
                "saved": proof and proof.saved,
                "healthy": proof and proof.healthy,
                "score": proof and proof.score,
                "kept": kept.get(step, []),
                "damage": damage,
            }
        )
    return rows


def _prune(workdir: pathlib.Path, rows: list[dict[str, Any]]) -> list[str]:
    """Removes what no rotation keeps, and what saves and damage left behind.

    A checkpoint whose proof cannot be read stays: nobody knows what it is.
    """
    folder = workdir / "checkpoints"
    with files.locked(workdir):
        removed = [r["name"] for r in rows if not r["kept"] and not r["damage"]]
        removed += [p.name for p in folder.glob(".*.partial")]
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
        f"{row['bytes'] / 1e9:,.2f} GB",
        row["saved"][:19],
        "healthy" if row["healthy"] else "an alarm held",
    ]
    if row["score"] is not None:
        parts.append(f"score {row['score']:.3f}")
    parts.append("kept as " + "+".join(row["kept"]) if row["kept"] else "may go")
    return " | ".join(parts) + (" | whole" if verified else "")


if __name__ == "__main__":
    main()
