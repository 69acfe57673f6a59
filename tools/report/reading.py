"""Reads the workdir of a run that may be in progress or come from an untrusted source.

Invalid lines and files are skipped and reported. Nothing in them is executed.
"""

import dataclasses
import fcntl
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.reading import changes
from rl.files import MAX_LINE_BYTES, read_lines
from tools.page import is_number

_MOST_BYTES = 64 * 2**20  # larger JSON files are not read
_WRONG = (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError)

Row = Mapping[str, Any]


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
    unreadable: Sequence[str]  # "FILE: reason" for unreadable lines and files

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
    runs = [read_run(workdir) for workdir in workdirs]
    if len({run.name for run in runs}) < len(runs):
        named = zip(runs, workdirs, strict=True)
        runs = [dataclasses.replace(run, name=str(workdir)) for run, workdir in named]
    names = [run.name for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]}: given twice; name each workdir once")
    return runs


def read_run(workdir: pathlib.Path) -> Run:
    if not (workdir / "config.json").is_file():
        raise ValueError(f"{workdir}: no config.json; give the workdir of a run")
    wrong: list[str] = []
    names = ("config", "manifest", "summary")
    config, manifest, summary = (_object(workdir / f"{n}.json", wrong) for n in names)
    rows = _rows(workdir / "metrics.jsonl", wrong, lambda row: True)
    metrics = [
        {
            k: math.nan if v is None else float(v)
            for k, v in row.items()
            if v is None or is_number(v)
        }
        for row in rows
    ]
    metrics.sort(key=lambda row: row["step"])
    return Run(
        name=workdir.name or str(workdir),
        config=config,
        changes=changes(config),
        manifest=manifest,
        steps=[row for row in metrics if "seconds/step" in row],
        evaluations=[row for row in metrics if "seconds/step" not in row],
        samples=_rows(workdir / "samples.jsonl", wrong, _is_sample),
        summary=summary,
        dumps={
            path.parent.name: _object(path, wrong)
            for path in sorted(workdir.glob("dumps/*/dump.json"))
        },
        running=_is_held(workdir / ".lock"),
        unreadable=wrong,
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


def _object(path: pathlib.Path, wrong: list[str]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES // 2**20} MiB")
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        return value
    except _WRONG as error:
        wrong.append(f"{path.name}: {' '.join(str(error).split())[:120]}")
        return {}


def _rows(
    path: pathlib.Path, wrong: list[str], fits: Callable[[Row], bool]
) -> list[dict[str, Any]]:
    """Returns the rows of a JSONL file; adds a message about invalid lines to `wrong`.

    A valid row has a step and satisfies `fits`.
    """
    if not path.is_file():
        return []
    rows, bad = [], []
    for number, line in read_lines(path):
        if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
            break  # the run is still writing it
        try:
            if len(line) > MAX_LINE_BYTES:
                raise ValueError("longer than the limit")
            row = json.loads(line)
            step = row["step"]
            if not (isinstance(step, int) and 0 <= step < 10**9 and fits(row)):
                raise ValueError("not a row of this file")
            rows.append(row)
        except _WRONG:
            bad.append(number)
    if bad:
        named = ", ".join(map(str, bad[:5])) + (" ..." if len(bad) > 5 else "")
        wrong.append(f"{path.name}: unreadable lines ({len(bad)}): {named}")
    return rows


def _is_sample(row: Row) -> bool:
    """Returns True for a row with valid types; otherwise returns False or raises."""
    why = row.get("shown_as") or []
    texts = [row["problem"], row["completion"], row["gold"], *why]
    is_list = isinstance(why, list) and is_number(row["reward"])
    return is_list and all(isinstance(text, str) for text in texts)


def _is_held(lock: pathlib.Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
