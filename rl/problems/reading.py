"""Problems from JSONL files or from a function, and the stream that feeds the loop."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl.files import HUB, fetched, read_rows, replace_rows
from rl.problems.functions import load_function
from rl.types import Problem
from rollout.seeds import generator

# In a run's workdir: the problems that it evaluates itself on.
HELD_OUT = "held_out.jsonl"
DEFAULT_FIELDS = {
    "id": "id",
    "problem": "problem",
    "answer": "answer",
    "answers": "answers",
    "source": "source",
    "level": "level",
}


def load_problems(
    source: str, *, key: str, fields: Mapping[str, str] | None = None, **arguments
) -> list[Problem]:
    """Reads problems.

    Args:
      source: JSONL files separated by commas, of which some may lie on the hub
        (`rl.files.fetched`), or "module:function", which is called with `arguments`
        and returns problems.
      key: the config's name for `source`, for errors.
      fields: our field names to the file's, where they differ.

    Raises:
      ValueError: names the file and row, or the key, and what is wrong.
    """
    for name, column in (fields or {}).items():
        if name not in DEFAULT_FIELDS:
            raise ValueError(
                f"config.data.fields.{name}={column!r}: unknown key, must be one"
                f" of {', '.join(DEFAULT_FIELDS)}"
            )
    if ":" in source.replace(HUB, "") and not pathlib.Path(source).exists():
        problems = list(load_function(source, key=key)(**arguments))
    else:
        problems, columns = [], {**DEFAULT_FIELDS, **(fields or {})}
        for name in filter(None, source.split(",")):
            if name.endswith(".parquet"):
                raise ValueError(
                    f"{key}={name!r}: training reads JSONL, as tools.curate writes it"
                    " of Parquet and of files on the hub"
                )
            problems += _read_jsonl(fetched(name), columns)
    return _checked(problems, f"{key}={source!r}")


def read_problems(path: pathlib.Path) -> list[Problem]:
    """Problems of a JSONL file, whatever its name: nothing is ever imported.

    Raises:
      ValueError: names the file and row, and what is wrong.
    """
    return _checked(_read_jsonl(path, DEFAULT_FIELDS), str(path))


def write_problems(path: pathlib.Path, problems: Sequence[Problem]) -> None:
    """Writes what `read_problems` reads.

    Raises:
      ValueError: a problem's `meta` is not JSON.
    """
    rows = [dataclasses.asdict(problem) for problem in problems]
    for row in rows:
        try:
            json.dumps(row["meta"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"problem {row['id']!r}: meta: {error}") from None
    replace_rows(path, rows)


def _checked(problems: list[Problem], where: str) -> list[Problem]:
    if not problems:
        raise ValueError(f"{where}: holds no problem")
    numbers: dict[str, int] = {}
    for number, problem in enumerate(problems, 1):
        if (before := numbers.setdefault(problem.id, number)) != number:
            raise ValueError(
                f"{where}: id {problem.id!r} occurs twice, as that of problem {before}"
                f" and of problem {number}"
            )
        try:
            json.dumps(dict(problem.meta))  # a checkpoint's groups hold it
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{where}: problem {problem.id!r}: meta: {error}"
            ) from None
    return problems


def _read_jsonl(path: pathlib.Path, fields: Mapping[str, str]) -> list[Problem]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    return [
        _parse(row, fields, where, f"{path.stem}-{where.rpartition(':')[2]}")
        for where, row in read_rows(path)
    ]


def _parse(
    row: Mapping[str, Any], fields: Mapping[str, str], where: str, default_id: str
) -> Problem:
    def text(name):
        value = row.get(fields[name])
        if name == "answer":
            value = _as_text(value)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(
                f"{where}: field {fields[name]!r} is {value!r}, not a text"
            )
        return value

    answers = row.get(fields["answers"])
    if answers is None:
        answers = [text("answer")]
    elif isinstance(answers, list):
        answers = list(map(_as_text, answers))
    if (
        not isinstance(answers, list)
        or not answers
        or not all(isinstance(a, str) and a.strip() for a in answers)
    ):
        raise ValueError(
            f"{where}: field {fields['answers']!r} is {answers!r}, not a list of texts"
        )
    own_id, level = row.get(fields["id"]), row.get(fields["level"])
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise ValueError(f"{where}: field {fields['level']!r} is {level!r}, not 1 to 5")
    return Problem(
        id=default_id if own_id is None else str(own_id),
        problem=text("problem"),
        answers=tuple(answers),
        source=str(row.get(fields["source"]) or ""),
        level=level,
        meta=_rest(row, fields),
    )


def _as_text(answer: Any) -> Any:
    """An answer that is a number in JSON, as text; any other as it is."""
    is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
    if isinstance(answer, float) and not math.isfinite(answer):
        return answer
    return repr(answer) if is_number else answer


def _rest(row: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """All columns that are no field of ours, and what stands in one named meta."""
    rest = {k: v for k, v in row.items() if k not in fields.values()}
    meta = rest.pop("meta", None) or {}
    return {**rest, **(meta if isinstance(meta, dict) else {"meta": meta})}


class ProblemStream:
    """Passes over a list, each in its own seeded order: all once before any twice.

    Args:
      problems: the list.
      seed: of the orders; a pair of numbers where several streams share one.
    """

    def __init__(self, problems: Sequence[Problem], *, seed: int | Sequence[int]):
        self._problems = list(problems)
        self._seed = [seed] if isinstance(seed, int) else list(seed)
        self._epoch, self._cursor = 0, 0
        # Where `next_pass` was called within this pass.
        self._turns: list[int] = []
        self._order = self._shuffle()

    @property
    def epoch(self) -> int:
        """Passes that are complete."""
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
        """Begins a full pass here: first what this pass has left, then the rest."""
        if self._cursor:
            self._turn(self._cursor)
            self._cursor = 0

    def _turn(self, cursor: int) -> None:
        self._turns.append(cursor)
        seen, left = self._order[:cursor], self._order[cursor:]
        shuffled = generator(*self._seed, self._epoch, cursor).permutation(seen)
        self._order = np.concatenate([left, shuffled])

    def state(self) -> dict[str, Any]:
        return {
            "epoch": self._epoch,
            "cursor": self._cursor,
            "turns": list(self._turns),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._cursor = state["epoch"], state["cursor"]
        self._turns = []
        self._order = self._shuffle()
        for cursor in state["turns"]:
            self._turn(cursor)
