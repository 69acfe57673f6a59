"""Problems from JSONL files or from a function, and the stream that feeds the loop."""

import importlib
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rl.types import Problem

DEFAULT_FIELDS = {
    "id": "id",
    "problem": "problem",
    "answer": "answer",
    "answers": "answers",
    "source": "source",
    "level": "level",
}


def load_function(where: str, *, key: str) -> Callable[..., Any]:
    """Imports "module:function"; `key` is the config's name for it in an error."""
    module_name, _, name = where.partition(":")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{key}={where!r}: cannot be imported ({error})") from None


def load_problems(
    source: str, *, key: str, fields: Mapping[str, str] | None = None, **arguments
) -> list[Problem]:
    """Reads problems.

    Args:
      source: JSONL files separated by commas, or "module:function", which is called
        with `arguments` and returns problems.
      key: the config's name for `source`, for errors.
      fields: our field names to the file's, where they differ.

    Raises:
      ValueError: names the file and row, or the key, and what is wrong.
    """
    if ":" in source and not pathlib.Path(source).exists():
        problems = list(load_function(source, key=key)(**arguments))
    else:
        problems = []
        for name in filter(None, source.split(",")):
            problems += _read_jsonl(
                pathlib.Path(name), {**DEFAULT_FIELDS, **(fields or {})}
            )
    if not problems:
        raise ValueError(f"{key}={source!r}: holds no problem")
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise ValueError(f"{key}={source!r}: id {problem.id!r} occurs twice")
        seen.add(problem.id)
    return problems


def _read_jsonl(path: pathlib.Path, fields: Mapping[str, str]) -> list[Problem]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    problems = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                where = f"{path}:{number}"
                problems.append(_parse(line, fields, where, f"{path.stem}-{number}"))
    return problems


def _parse(line: bytes, fields: Mapping[str, str], where: str, default_id: str):
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not valid JSON ({error.msg})") from None
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a row must be an object, not {type(row).__name__}")

    def text(name):
        value = row.get(fields[name])
        if not isinstance(value, str) or not value.strip():
            raise ValueError(
                f"{where}: field {fields[name]!r} is {value!r}, not a text"
            )
        return value

    answers = row.get(fields["answers"])
    if answers is None:
        answers = [text("answer")]
    if (
        not isinstance(answers, list)
        or not answers
        or not all(isinstance(a, str) and a.strip() for a in answers)
    ):
        raise ValueError(
            f"{where}: field {fields['answers']!r} is {answers!r}, not a list of texts"
        )
    level = row.get(fields["level"])
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise ValueError(f"{where}: field {fields['level']!r} is {level!r}, not 1 to 5")
    return Problem(
        id=str(row.get(fields["id"], default_id)),
        problem=text("problem"),
        answers=tuple(answers),
        source=str(row.get(fields["source"]) or ""),
        level=level,
        meta=row.get("meta") or {},
    )


class ProblemSource(Protocol):
    """An endless supply of problems whose position can be saved."""

    def draw(self, n: int) -> list[Problem]: ...

    def state(self) -> dict[str, Any]:
        """JSON-able; `restore` of it continues with the very next problem."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


class ProblemStream:
    """Passes over a list, each in its own seeded order: all once before any twice.

    Args:
      problems: the list.
      seed: of the orders; a pair of numbers where several streams share one.
    """

    def __init__(self, problems: Sequence[Problem], *, seed: int | Sequence[int]):
        self._problems = list(problems)
        self._seed = [seed] if isinstance(seed, int) else list(seed)
        self._epoch, self._cursor, self._turns = 0, 0, []
        self._order = self._shuffle()

    @property
    def epoch(self) -> int:
        """Passes that are complete."""
        return self._epoch

    def _shuffle(self) -> np.ndarray:
        generator = np.random.default_rng([*self._seed, self._epoch])
        return generator.permutation(len(self._problems))

    def draw(self, n: int) -> list[Problem]:
        drawn = []
        for _ in range(n):
            if self._cursor == len(self._order):
                self._epoch, self._cursor, self._turns = self._epoch + 1, 0, []
                self._order = self._shuffle()
            drawn.append(self._problems[self._order[self._cursor]])
            self._cursor += 1
        return drawn

    def turn(self) -> None:
        """Begins a full pass here: first what this pass has left, then the rest."""
        if self._cursor:
            self._rotate(self._cursor)
            self._turns.append(self._cursor)
            self._cursor = 0

    def _rotate(self, cursor: int) -> None:
        generator = np.random.default_rng([*self._seed, self._epoch, cursor])
        seen = generator.permutation(self._order[:cursor])
        self._order = np.concatenate([self._order[cursor:], seen])

    def state(self) -> dict[str, Any]:
        return {
            "epoch": self._epoch,
            "cursor": self._cursor,
            "turns": list(self._turns),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._cursor = state["epoch"], state["cursor"]
        self._turns = list(state["turns"])
        self._order = self._shuffle()
        for cursor in self._turns:
            self._rotate(cursor)
