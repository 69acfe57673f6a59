"""Reads the workdir of a run, which may be in progress.

Nothing in a workdir is executed. A damaged file raises ValueError with its name.
"""

import dataclasses
import fcntl
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from configs.reading import changes
from rl.files import read_json, read_rows
from tools.page import is_number

Row = Mapping[str, Any]
_TEXTS = dict.fromkeys(("problem", "completion", "gold"), str)
_SAMPLE = {"step": int, "reward": float, **_TEXTS}  # types of used fields


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Holds the contents of a workdir."""

    name: str  # name or path of the workdir
    config: Row
    changes: Row  # the config's differences from configs/base.py, by dotted key
    manifest: Row
    steps: Sequence[Mapping[str, float]]  # metrics of each step, in ascending order
    evaluations: Sequence[Mapping[str, float]]  # metrics of each evaluation
    samples: Sequence[Row]
    summary: Row  # empty until the run has ended once
    dumps: Mapping[str, Row]  # contents of dumps/NAME/dump.json by NAME
    running: bool  # whether a process has locked the workdir

    @property
    def done(self) -> int:
        return int(self.steps[-1]["step"]) if self.steps else 0

    def series(self, tag: str) -> list[tuple[float, float]]:
        """Returns `(step, value)` for each finite value of the metric `tag`."""
        rows = sorted([*self.steps, *self.evaluations], key=lambda row: row["step"])
        found = ((row["step"], row.get(tag, math.nan)) for row in rows)
        return [(step, value) for step, value in found if math.isfinite(value)]


def read_runs(workdirs: Sequence[pathlib.Path]) -> list[Run]:
    """Reads workdirs. If two folders have the same name, names all runs by path."""
    folders = list(dict.fromkeys(workdirs))
    unique = len({folder.name for folder in folders}) == len(folders)
    return [_read_run(f, f.name if unique and f.name else str(f)) for f in folders]


def _read_run(workdir: pathlib.Path, name: str) -> Run:
    if not (workdir / "config.json").is_file():
        raise ValueError(f"{workdir}: no config.json; give the workdir of a run")
    config, samples = _object(workdir / "config.json"), workdir / "samples.jsonl"
    metrics = sorted(_metrics(workdir / "metrics.jsonl"), key=lambda row: row["step"])
    return Run(
        name=name,
        config=config,
        changes=changes(config),
        manifest=_object(workdir / "manifest.json"),
        steps=[row for row in metrics if "seconds/step" in row],
        evaluations=[row for row in metrics if "seconds/step" not in row],
        samples=[row for _, row in read_rows(samples, appended=True, fields=_SAMPLE)],
        summary=_object(workdir / "summary.json"),
        dumps={
            path.parent.name: _object(path)
            for path in sorted(workdir.glob("dumps/*/dump.json"))
        },
        running=_is_locked(workdir / ".lock"),
    )


def part(tree: Any, *names: str) -> Row:
    """Returns the object at the keys `names` in nested objects; empty if missing."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def interval_of(figures: Row) -> tuple[float, float] | None:
    """Returns the 95% interval of an accuracy; None if it is missing or not valid."""
    pair = figures.get("accuracy_interval")
    if isinstance(pair, list) and len(pair) == 2 and all(map(is_number, pair)):
        return float(pair[0]), float(pair[1])
    return None


def _object(path: pathlib.Path) -> dict[str, Any]:
    value = read_json(path) if path.is_file() else {}
    if not isinstance(value, dict):
        raise ValueError(f"{path}: must be a JSON object; restore it")
    return value


def _metrics(path: pathlib.Path) -> Iterator[dict[str, float]]:
    """Yields the numbers of each row; a run writes null for NaN."""
    for _, row in read_rows(path, appended=True, fields={"step": int}):
        values = {key: math.nan if v is None else v for key, v in row.items()}
        yield {key: float(v) for key, v in values.items() if is_number(v)}


def _is_locked(path: pathlib.Path) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False
