"""Reads a workdir as it is: a run may still write, and files may come from anyone.

Lines and files of another form are left out and reported. Nothing in them is executed.
"""

import dataclasses
import fcntl
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.reading import changes
from rl.files import MAX_LINE_BYTES
from tools.page import is_number

_MOST_BYTES = 64 * 2**20  # of a file that is read at once
_WRONG = (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError)

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Holds what a workdir says.

    Attributes:
      name: of its folder.
      config, manifest: config.json and manifest.json.
      changes: the config's differences from configs/base.py, by dotted key.
      steps: numbers of each step's row of metrics.jsonl, by ascending step.
      evaluations: numbers of each evaluation's row.
      samples: rows of samples.jsonl.
      summary: summary.json; empty before the end.
      dumps: names of the folders in dumps/, each with its dump.json.
      running: whether a process holds the folder.
      unreadable: lines and files that could not be read, `PATH: why`.
    """

    name: str
    config: Row
    changes: Row
    manifest: Row
    steps: Sequence[Mapping[str, float]]
    evaluations: Sequence[Mapping[str, float]]
    samples: Sequence[Row]
    summary: Row
    dumps: Mapping[str, Row]
    running: bool
    unreadable: Sequence[str]

    @property
    def done(self) -> int:
        """Number of steps done."""
        return int(self.steps[-1]["step"]) if self.steps else 0

    def series(self, tag: str) -> list[tuple[float, float]]:
        """Returns `(step, value)` of a metric where it is finite."""
        rows = sorted([*self.steps, *self.evaluations], key=lambda row: row["step"])
        found = ((row["step"], row.get(tag, math.nan)) for row in rows)
        return [(step, value) for step, value in found if math.isfinite(value)]


def read_runs(workdirs: Sequence[pathlib.Path]) -> list[Run]:
    """Reads several workdirs, each under a name of its own.

    Raises:
      ValueError: a folder is not a workdir, or is given twice.
    """
    runs = [read_run(workdir) for workdir in workdirs]
    if len({run.name for run in runs}) < len(runs):
        named = zip(runs, workdirs, strict=True)
        runs = [dataclasses.replace(run, name=str(workdir)) for run, workdir in named]
    names = [run.name for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]}: given twice; name each workdir once")
    return runs


def read_run(workdir: pathlib.Path) -> Run:
    """Reads a workdir.

    Raises:
      ValueError: it has no config.json.
    """
    if not (workdir / "config.json").is_file():
        raise ValueError(f"{workdir}: no config.json; give the --workdir of a run")
    wrong: list[str] = []
    names = ("config", "manifest", "summary")
    config, manifest, summary = (_object(workdir / f"{n}.json", wrong) for n in names)
    rows = _rows(workdir / "metrics.jsonl", wrong, lambda row: True)
    metrics = [{k: float(v) for k, v in row.items() if is_number(v)} for row in rows]
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
    """Returns a part of nested objects; empty if it is missing."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def interval_of(figures: Row) -> tuple[float, float] | None:
    """Returns the 95% interval of an accuracy, None where there is none."""
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
            raise ValueError("not an object")
        return value
    except _WRONG as error:
        wrong.append(f"{path.name}: {' '.join(str(error).split())[:120]}")
        return {}


def _rows(
    path: pathlib.Path, wrong: list[str], fits: Callable[[Row], bool]
) -> list[dict[str, Any]]:
    """Reads rows that have a step and fit; a last line without its end is ignored."""
    if not path.is_file():
        return []
    rows, bad, number = [], [], 0
    with path.open("rb") as file:
        while (line := file.readline(MAX_LINE_BYTES)).endswith(b"\n"):
            number += 1
            try:
                row = json.loads(line)
                step = row["step"]
                if not (isinstance(step, int) and 0 <= step < 10**9 and fits(row)):
                    raise ValueError("another form")
                rows.append(row)
            except _WRONG:
                bad.append(number)
    if bad:
        named = ", ".join(map(str, bad[:5])) + (" ..." if len(bad) > 5 else "")
        wrong.append(f"{path.name}: {len(bad)} unreadable lines: {named}")
    return rows


def _is_sample(row: Row) -> bool:
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
