"""Reads problems from JSONL files or a function, and draws them in passes."""

import dataclasses
import glob
import json
import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from configs.schema import call
from rl.files import HUB, fetched, read_rows, replace_rows
from rl.problems.functions import load_function
from rl.types import Problem
from rollout.seeds import generator

# File in a run's workdir with the problems of the run's evaluations.
HELD_OUT = "held_out.jsonl"
FIELDS = ("id", "problem", "answer", "answers", "source", "level")


def load_problems(
    source: str, *, key: str, fields: Mapping[str, str] | None = None, **arguments
) -> list[Problem]:
    """Reads problems from files or calls a function that returns problems.

    Args:
      source: JSONL files separated by commas, local or on the Hugging Face Hub
        (`rl.files.fetched`); or a user's "module:function".
      key: config key of `source`, for error messages.
      fields: column of the file for each field of `FIELDS`, if the names differ.
      **arguments: keyword arguments of the function.

    Raises:
      ValueError: a file, row or function is not valid.
    """
    if "://" in source.replace(HUB, ""):
        raise ValueError(
            f"{key}={source!r}: must be local files or {HUB}OWNER/DATASET/PATH;"
            " download other files first"
        )
    if ":" in source.replace(HUB, "") and not pathlib.Path(source).exists():
        function = load_function(source, key=key)
        where = f"{key}={source!r}"
        section = re.sub(r"^config\.(data\.\w+)", r"\1_args", key)
        try:
            result = list(call(function, section, arguments))
        except ValueError as error:
            if str(error).startswith("config."):
                raise
            raise ValueError(f"{where}: {error}") from error
        return _checked(
            ((f"{where}, problem {i}", p) for i, p in enumerate(result, 1)), where
        )
    paths = []
    for name in filter(None, map(str.strip, source.split(","))):
        if name.endswith(".parquet"):
            raise ValueError(
                f"{key}={name!r}: must be JSONL; convert Parquet with"
                " python -m tools.curate"
            )
        paths.append(fetched(name))
    return _read(paths, fields or {}, f"{key}={source!r}")


def read_problems(
    path: pathlib.Path, fields: Mapping[str, str] | None = None
) -> list[Problem]:
    """Reads the problems of one JSONL file; never imports a user's function."""
    return _read([path], fields or {}, str(path))


def write_problems(path: pathlib.Path, problems: Sequence[Problem]) -> None:
    """Writes problems to a JSONL file, which `read_problems` reads.

    Raises:
      ValueError: a problem is not valid; see `_checked`.
    """
    rows = ((f"{path}, problem {i}", p) for i, p in enumerate(problems, 1))
    replace_rows(path, map(dataclasses.asdict, _checked(rows, str(path))))


def _read(
    paths: Sequence[pathlib.Path], fields: Mapping[str, str], source: str
) -> list[Problem]:
    for name, column in fields.items():
        if name not in FIELDS:
            raise ValueError(
                f"config.data.fields.{name}={column!r}: unknown key; use one of"
                f" {', '.join(FIELDS)}"
            )
    columns = {name: name for name in FIELDS} | dict(fields)
    rows: list[tuple[str, Problem]] = []
    stems: list[str] = []
    for path in paths:
        if not path.is_file():
            key = "" if source == str(path) else f"{source}: "
            what = "is a folder" if path.is_dir() else "no such file"
            if path.is_dir() or glob.has_magic(str(path)):
                what += "; give the names of the files, separated by commas"
            raise ValueError(f"{key}{path}: {what}")
        # Files in different folders may have equal names, but ids must differ.
        again = stems.count(path.stem)
        stems.append(path.stem)
        name = f"{path.stem}.{again + 1}" if again else path.stem
        for where, row in read_rows(path):
            default_id = f"{name}-{where.rpartition(':')[2]}"
            rows.append((where, _parse(row, columns, where, default_id)))
    return _checked(rows, source)


def _checked(rows: Iterable[tuple[str, Problem]], source: str) -> list[Problem]:
    """Returns the problems of all rows, after checking them.

    Args:
      rows: for each problem, its place for error messages, and the problem.
      source: the source of all problems, for error messages.

    Raises:
      ValueError: there are no problems, an entry is not a `Problem`, an id occurs in
        two places, a text is empty, or a value cannot be stored as JSON.
    """
    places: dict[str, str] = {}
    problems = []
    for where, problem in rows:
        if not isinstance(problem, Problem):
            raise ValueError(
                f"{where}: must be an rl.types.Problem, not {problem!r:.60}"
            )
        first = places.setdefault(problem.id, where)
        if first != where:
            raise ValueError(
                f"{where}: id {problem.id!r} occurs twice, first in {first}"
            )
        for name, texts in (
            ("problem", [problem.problem]),
            ("answers", list(problem.answers)),
        ):
            if not texts or not all(isinstance(t, str) and t.strip() for t in texts):
                raise ValueError(f"{where}: {name}={texts!r}: must be non-empty text")
        try:  # sample files and checkpoints store problems as JSON
            json.dumps(dataclasses.asdict(problem), ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: cannot be stored as JSON: {error}") from None
        problems.append(problem)
    if not problems:
        raise ValueError(f"{source}: contains no problems")
    return problems


def _parse(
    row: Mapping[str, Any], columns: Mapping[str, str], where: str, default_id: str
) -> Problem:
    def wrong(name: str, wanted: str) -> ValueError:
        column, there = columns[name], ", ".join(map(repr, row))
        what = (
            f"is {row[column]!r:.80}, not {wanted}" if column in row else "is missing"
        )
        if name == "answer" and isinstance(row.get(column), list):
            what, name = f"{what} (for a list use `answers`)", "answers"
        return ValueError(
            f"{where}: field {column!r} {what}; the row has {there or 'no columns'};"
            f" set config.data.fields.{name} (--fields {name}=COLUMN) to use another"
            " column"
        )

    def text(name: str) -> str:
        value = row.get(columns[name])
        if name == "answer":
            value = _as_text(value)
        if not isinstance(value, str) or not value.strip():
            raise wrong(name, "text")
        return value

    answers = row.get(columns["answers"])
    if answers is None:
        answers = [text("answer")]
    if not isinstance(answers, list):
        raise wrong("answers", "a list of texts")
    answers = list(map(_as_text, answers))
    if not answers or not all(isinstance(a, str) and a.strip() for a in answers):
        raise wrong("answers", "a list of texts")
    own_id, level = row.get(columns["id"]), row.get(columns["level"])
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise wrong("level", "an integer")
    return Problem(
        id=default_id if own_id is None else str(own_id),
        problem=text("problem"),
        answers=tuple(answers),
        source=str(row.get(columns["source"]) or ""),
        level=level,
        meta=_rest(row, columns),
    )


def _as_text(answer: Any) -> Any:
    """Converts a finite number to text; returns other values and bools unchanged."""
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return answer
    finite = isinstance(answer, int) or math.isfinite(answer)
    return repr(answer) if finite else answer


def _rest(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Returns the value of `Problem.meta`.

    It has all columns that are not fields, and the entries of a column `meta`.
    """
    rest = {k: v for k, v in row.items() if k not in columns.values()}
    meta = rest.pop("meta", None) or {}
    return {**rest, **(meta if isinstance(meta, dict) else {"meta": meta})}


def check_left_out(message: str, count: int, total: int, unreadable: float) -> str:
    """Checks that the share of problems that are left out is small enough.

    Args:
      message: what is wrong with these problems.
      count: number of problems to leave out.
      total: number of all problems.
      unreadable: largest allowed share, `config.data.unreadable`.

    Returns:
      The warning: `message`, and that the problems are left out.

    Raises:
      ValueError: the share is larger; the error begins with `message`.
    """
    if count > unreadable * total:
        raise ValueError(
            f"{message}; fix them, or raise config.data.unreadable={unreadable:g}, the"
            " share that may be left out"
        )
    return f"{message}; they are left out"


class ProblemStream:
    """Draws problems in passes.

    Each pass draws every problem once. The order depends on the seed, the number of the
    pass, and the calls of `next_pass`.
    """

    def __init__(self, problems: Sequence[Problem], *, seed: int | Sequence[int]):
        self._problems = list(problems)
        self._seed = [seed] if isinstance(seed, int) else list(seed)
        self._epoch, self._cursor = 0, 0
        # Positions in this pass at which `next_pass` was called.
        self._turns: list[int] = []
        self._order = self._shuffle()

    @property
    def epoch(self) -> int:
        """Returns the index of the current pass: the number of passes before it."""
        return self._epoch

    def _shuffle(self) -> np.ndarray:
        return generator(*self._seed, self._epoch).permutation(len(self._problems))

    def draw(self, n: int) -> list[Problem]:
        drawn = []
        for _ in range(n):
            if self._cursor == len(self._order):
                self._epoch, self._cursor, self._turns = self._epoch + 1, 0, []
                self._order = self._shuffle()
            drawn.append(self._problems[self._order[self._cursor]])
            self._cursor += 1
        return drawn

    def next_pass(self) -> None:
        """Restarts the pass: the problems not yet drawn come before the others."""
        if self._cursor:
            self._turn(self._cursor)
            self._cursor = 0

    def _turn(self, cursor: int) -> None:
        self._turns.append(cursor)
        seen, left = self._order[:cursor], self._order[cursor:]
        shuffled = generator(*self._seed, self._epoch, cursor).permutation(seen)
        self._order = np.concatenate([left, shuffled])

    def state(self) -> dict[str, Any]:
        turns = list(self._turns)
        return {"epoch": self._epoch, "cursor": self._cursor, "turns": turns}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._cursor = state["epoch"], state["cursor"]
        self._turns = []
        self._order = self._shuffle()
        for cursor in state["turns"]:
            self._turn(cursor)
