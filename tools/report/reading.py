"""A workdir as it is found: a run may write on, and files may come from anybody.

What is not as a run writes it is left out and counted; nothing of it is run.
"""

import dataclasses
import fcntl
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.base import get_config as defaults
from configs.schema import changes
from rl.files import MAX_LINE_BYTES

_MOST_BYTES = 64 * 2**20  # of a file that is read at once


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a workdir says.

    Attributes:
      name: of its folder.
      config: as config.json has it, in sections.
      changes: of it to configs/base.py, by dotted key.
      manifest: identity, history and start.
      steps: rows of metrics.jsonl of whole steps, numbers alone, by ascending step.
      evaluations: its rows of evaluations.
      samples, tokens: rows of samples.jsonl and tokens.jsonl.
      summary: of a run that has ended; empty before.
      dumps: what each dump says, by the name of its folder.
      goes_on: a process holds the folder.
      unreadable: lines and files that are not what they should be, `PATH: why`.
    """

    name: str
    config: Mapping[str, Any]
    changes: Mapping[str, Any]
    manifest: Mapping[str, Any]
    steps: Sequence[Mapping[str, float]]
    evaluations: Sequence[Mapping[str, float]]
    samples: Sequence[Mapping[str, Any]]
    tokens: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    dumps: Mapping[str, Mapping[str, Any]]
    goes_on: bool
    unreadable: Sequence[str]

    @property
    def done(self) -> int:
        """Steps done."""
        return int(self.steps[-1]["step"]) if self.steps else 0

    def series(self, tag: str) -> list[tuple[float, float]]:
        """`(step, value)` of a figure where it is finite."""
        rows = sorted([*self.steps, *self.evaluations], key=lambda row: row["step"])
        found = ((row["step"], row.get(tag, math.nan)) for row in rows)
        return [(step, value) for step, value in found if math.isfinite(value)]


def read_runs(workdirs: Sequence[pathlib.Path]) -> list[Run]:
    """Reads several, each under a name of its own.

    Raises:
      ValueError: one line: one is none, or is given twice.
    """
    runs = [read_run(workdir) for workdir in workdirs]
    if len({run.name for run in runs}) < len(runs):
        named = zip(runs, workdirs, strict=True)
        runs = [dataclasses.replace(run, name=str(workdir)) for run, workdir in named]
    names = [run.name for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]}: is given twice")
    return runs


def read_run(workdir: pathlib.Path) -> Run:
    """Reads a workdir.

    Raises:
      ValueError: one line: it is none.
    """
    if not (workdir / "config.json").is_file():
        raise ValueError(f"{workdir}: no workdir of a run: it has no config.json")
    problems: list[str] = []
    whole = {
        name: _object(workdir / f"{name}.json", problems)
        for name in ("config", "manifest", "summary")
    }
    metrics = _rows(workdir / "metrics.jsonl", problems, _figures)
    metrics = sorted(metrics, key=lambda row: row["step"])
    texts = [
        _rows(workdir / f"{name}.jsonl", problems, fits)
        for name, fits in (("samples", _sample), ("tokens", _token_row))
    ]
    dumps = {
        path.parent.name: _object(path, problems)
        for path in sorted(workdir.glob("dumps/*/dump.json"))
    }
    return Run(
        name=workdir.name or str(workdir),
        config=whole["config"],
        changes=changes(whole["config"], defaults()),
        manifest=whole["manifest"],
        steps=[row for row in metrics if "seconds/step" in row],
        evaluations=[row for row in metrics if "seconds/step" not in row],
        samples=texts[0],
        tokens=texts[1],
        summary=whole["summary"],
        dumps=dumps,
        goes_on=_is_held(workdir / ".lock"),
        unreadable=problems,
    )


def section(tree: Any, *names: str) -> Mapping[str, Any]:
    """A part of nested objects; empty where it is not there, or something else."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def _object(path: pathlib.Path, problems: list[str]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES // 2**20} MiB")
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("no object")
        return value
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{path.name}: {' '.join(str(error).split())[:120]}")
        return {}


def _rows(
    path: pathlib.Path,
    problems: list[str],
    fits: Callable[[dict[str, Any]], dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """Rows that fit; a last line that is still being written does not count."""
    rows, wrong = [], []
    if not path.is_file():
        return rows
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if not line.endswith(b"\n"):
                break
            try:
                row = json.loads(line)
                fitting = fits(row) if isinstance(row, dict) else None
            except (ValueError, RecursionError, OverflowError):
                fitting = None
            if fitting is None:
                wrong.append(number)
            else:
                rows.append(fitting)
    if wrong:
        named = ", ".join(map(str, wrong[:5])) + (" ..." if len(wrong) > 5 else "")
        problems.append(f"{path.name}: {len(wrong)} lines are no rows: {named}")
    return rows


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _step(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("step"), int) and 0 <= row["step"] < 10**9


def _figures(row: dict[str, Any]) -> dict[str, float] | None:
    figures = {key: float(value) for key, value in row.items() if _number(value)}
    return figures if _step(row) else None


def _sample(row: dict[str, Any]) -> dict[str, Any] | None:
    texts = all(isinstance(row.get(k), str) for k in ("problem", "completion", "gold"))
    kinds = row.setdefault("shown_as", [])
    fits = texts and _step(row) and _number(row.get("reward"))
    named = isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)
    return row if fits and named else None


def _token_row(row: dict[str, Any]) -> dict[str, Any] | None:
    lists = [row.get(k) for k in ("ids", "texts", "sampler", "trainer", "after")]
    if not _step(row) or not all(isinstance(part, list) for part in lists):
        return None
    if len({len(part) for part in lists}) != 1:
        return None
    texts, *numbers = lists[1], lists[0], *lists[2:]
    if not all(isinstance(text, str) for text in texts):
        return None
    if not all(_number(value) for part in numbers for value in part):
        return None
    scalars = all(_number(row.get(k)) for k in ("advantage", "eps_low", "eps_high"))
    return row if scalars and isinstance(row.get("versions"), list) else None


def _is_held(lock: pathlib.Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
