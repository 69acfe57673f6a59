"""A workdir as it is found: a run may write on, and files may come from anybody.

What is not as a run writes it is left out and counted; nothing of it is run.
"""

import dataclasses
import fcntl
import functools
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.base import get_config as defaults
from configs.schema import changes
from rl.files import MAX_LINE_BYTES
from tools.page import is_number

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

    @property
    def history(self) -> list[Mapping[str, Any]]:
        """The manifest's rows of starts with changes."""
        rows = self.manifest.get("history")
        rows = rows if isinstance(rows, list) else []
        return [row for row in rows if isinstance(row, Mapping)]

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
    config, manifest, summary = (
        _object(workdir / f"{name}.json", problems)
        for name in ("config", "manifest", "summary")
    )
    metrics, samples, tokens = (
        _rows(workdir / f"{name}.jsonl", problems, read)
        for name, read in (
            ("metrics", _figures),
            ("samples", functools.partial(_shaped, _SAMPLE)),
            ("tokens", _token_row),
        )
    )
    metrics.sort(key=lambda row: row["step"])
    return Run(
        name=workdir.name or str(workdir),
        config=config,
        changes=changes(config, defaults()),
        manifest=manifest,
        steps=[row for row in metrics if "seconds/step" in row],
        evaluations=[row for row in metrics if "seconds/step" not in row],
        samples=samples,
        tokens=tokens,
        summary=summary,
        dumps={
            path.parent.name: _object(path, problems)
            for path in sorted(workdir.glob("dumps/*/dump.json"))
        },
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
    path: pathlib.Path, problems: list[str], read: Callable[[Any], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rows of which `read` makes one; a last line that is being written is none."""
    if not path.is_file():
        return []
    rows, wrong, number = [], [], 0
    with path.open("rb") as file:
        while (line := file.readline(MAX_LINE_BYTES)).endswith(b"\n"):
            number += 1
            try:
                rows.append(read(json.loads(line)))
            except (ValueError, RecursionError, OverflowError):
                wrong.append(number)
    if wrong:
        named = ", ".join(map(str, wrong[:5])) + (" ..." if len(wrong) > 5 else "")
        problems.append(f"{path.name}: {len(wrong)} lines are no rows: {named}")
    return rows


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 10**9


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


_SAMPLE = dict.fromkeys(("problem", "completion", "gold"), _is_text)
_SAMPLE |= {"step": _is_step, "reward": is_number}
_SAMPLE["shown_as"] = lambda value: value is None or _are(_is_text)(value)
_PER_TOKEN = dict.fromkeys(("ids", "sampler", "trainer", "after"), _are(is_number))
_PER_TOKEN |= {"texts": _are(_is_text)}
_TOKENS = dict.fromkeys(("advantage", "eps_low", "eps_high"), is_number) | _PER_TOKEN
_TOKENS |= {"step": _is_step, "versions": _are(lambda version: True)}


def _shaped(shape: Mapping[str, Callable[[Any], bool]], row: Any) -> dict[str, Any]:
    if not isinstance(row, dict) or not all(f(row.get(k)) for k, f in shape.items()):
        raise ValueError("another shape")
    return row


def _figures(row: Any) -> dict[str, float]:
    found = _shaped({"step": _is_step}, row)
    return {key: float(value) for key, value in found.items() if is_number(value)}


def _token_row(row: Any) -> dict[str, Any]:
    found = _shaped(_TOKENS, row)
    if len({len(found[key]) for key in _PER_TOKEN}) > 1:
        raise ValueError("lists of several lengths")
    return found


def _is_held(lock: pathlib.Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
