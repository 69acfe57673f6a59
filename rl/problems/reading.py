"""Reads problems from JSONL files or a function."""

import dataclasses
import functools
import glob
import json
import math
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from configs.schema import call
from rl.errors import user_code
from rl.files import HUB, fetched, read_rows, replace_rows
from rl.problems.functions import load_function
from rl.types import Problem

HELD_OUT = "held_out.jsonl"  # in a run's workdir: the problems of its evaluations
FIELDS = ("id", "problem", "answer", "answers", "source", "level")
# MATH has texts such as "Level 3", and "Level ?" where the level is unknown.
_LEVEL = re.compile(r"(?:Level )?(\d{1,9}|\?)")
_Row = tuple[str, Problem]  # where the problem is, for error messages; the problem


def load_problems(
    source: str,
    *,
    key: str,
    fields: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> list[Problem]:
    """Reads problems from files or calls a function that returns problems.

    Args:
      source: JSONL files separated by commas, local or on the Hugging Face Hub
        (`rl.files.fetched`); or a user's "module:function", called with `arguments`.
      key: config key of `source`, for error messages.
      fields: maps a name in `FIELDS` to the file's column, if the names differ. Files
        of training problems must have each of these columns in some row.

    Raises:
      ValueError: a file, row or function is not valid.
    """
    if "://" in source.replace(HUB, ""):
        raise ValueError(
            f"{key}={source!r}: must be local files or {HUB}OWNER/DATASET/PATH;"
            " download other files first"
        )
    where = f"{key}={source!r}"
    if ":" in source.replace(HUB, "") and not pathlib.Path(source).exists():
        return _distinct(_made(source, key, arguments or {}), where)
    paths = []
    one = os.path.isfile(os.path.expanduser(source))  # its name may have a comma
    for name in [source] if one else filter(None, map(str.strip, source.split(","))):
        if name.endswith((".parquet", ".csv", ".tsv")):
            raise ValueError(
                f"{key}={name!r}: must be JSONL, with one object per line; convert the"
                " file (Parquet with python -m tools.curate)"
            )
        paths.append(fetched(name))
    every_column = key == "config.data.train"
    return read_problems(*paths, fields=fields, source=where, every_column=every_column)


def read_problems(
    *paths: pathlib.Path,
    fields: Mapping[str, str] | None = None,
    source: str = "",
    every_column: bool = False,
) -> list[Problem]:
    """Reads the problems of JSONL files; never imports a user's function.

    For `fields` see `load_problems`; with `every_column`, some row must have each of
    these columns. `source` names the files in error messages; by default, their paths.
    """
    fields, source = fields or {}, source or ", ".join(map(str, paths))
    named = "config.data.fields or --fields"
    rows: list[_Row] = []
    for name, column in fields.items():
        if name not in FIELDS or not isinstance(column, str):
            wrong = "must be a column's name" if name in FIELDS else "unknown key"
            raise ValueError(
                f"{named}: {name}={column!r}: {wrong}; name the columns of"
                f" {', '.join(FIELDS)}"
            )
    stems: list[str] = []
    there: set[str] = set()  # columns
    for path in paths:
        if not path.is_file():
            key = "" if source == str(path) else f"{source}: "
            what = "is a folder" if path.is_dir() else "no such file"
            if path.exists() and not path.is_dir():
                what = "is a pipe or a device; write the data to a file"
            if path.is_dir() or glob.has_magic(str(path)):
                what += "; give the names of the files, separated by commas"
            elif not path.exists():
                what += "" if path.is_absolute() else f" in {pathlib.Path.cwd()}"
                what += f"; give a local JSONL file or {HUB}OWNER/DATASET/FILE"
            raise ValueError(f"{key}{path}: {what}")
        # Files in different folders may have equal names, but ids must differ.
        again = stems.count(path.stem)
        stems.append(path.stem)
        name = f"{path.stem}.{again + 1}" if again else path.stem
        for where, row in read_rows(path):
            default_id = f"{name}-{where.rpartition(':')[2]}"
            rows.append((where, _parse(row, fields, where, default_id)))
            there |= row.keys()
    for name, column in fields.items() if every_column and there else ():
        if column not in there:
            raise ValueError(
                f"{named}: {name}={column!r}: no row of {source} has this column; use"
                f" one of {', '.join(sorted(there))}"
            )
    return _distinct(rows, source)


def write_problems(path: pathlib.Path, problems: Sequence[Problem]) -> None:
    replace_rows(path, map(dataclasses.asdict, problems))


def _made(source: str, key: str, arguments: Mapping[str, Any]) -> Iterator[_Row]:
    """Yields the checked problems that a user's function returns."""
    function, where = load_function(source, key=key), f"{key}={source!r}"

    @functools.wraps(function)
    def make(**given):
        with user_code(where):
            if not isinstance(problems := function(**given), Iterable):
                raise ValueError(f"must return problems, not {problems!r:.60}")
            return list(problems)

    section = re.sub(r"^config\.(data\.\w+)", r"\1_args", key)
    for i, problem in enumerate(call(make, section, arguments), 1):
        yield _check((f"{where}, problem {i}", problem))


def _check(row: _Row) -> _Row:
    """Returns `row` with a tuple of answers; raises ValueError if it is not valid."""
    where, problem = row
    if not isinstance(problem, Problem):
        raise ValueError(f"{where}: must be an rl.types.Problem, not {problem!r:.60}")
    answers, level = problem.answers, problem.level
    # ("72") is the text "72": a tuple with one entry needs a comma.
    listed = answers if isinstance(answers, list | tuple) else ()
    for name, valid, wanted in (
        ("problem", _is_text(problem.problem), "non-empty text"),
        ("answers", listed and all(map(_is_text, listed)), "a tuple of texts"),
        ("level", level is None or type(level) is int, "an integer or None"),
        ("meta", isinstance(problem.meta, Mapping), "a dict"),
    ):
        if not valid:
            wrong = f"{name}={getattr(problem, name)!r}"
            raise ValueError(f"{where}: {wrong}: must be {wanted}")
    try:  # sample files and checkpoints store problems as JSON
        json.dumps(dataclasses.asdict(problem), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: cannot be stored as JSON ({error}); use valid texts,"
            " numbers, lists and dicts"
        ) from None
    return where, dataclasses.replace(problem, answers=tuple(answers))


def _distinct(rows: Iterable[_Row], source: str) -> list[Problem]:
    """Returns the problems; raises ValueError if two have one id, or there are none."""
    first: dict[str, str] = {}
    problems = []
    for where, problem in rows:
        if first.setdefault(problem.id, where) != where:
            raise ValueError(
                f"{where}: id {problem.id!r} occurs twice, first in"
                f" {first[problem.id]}; give each problem its own id"
            )
        problems.append(problem)
    if not problems:
        raise ValueError(f"{source}: contains no problems; give other data")
    return problems


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _parse(
    row: Mapping[str, Any], fields: Mapping[str, str], where: str, default_id: str
) -> Problem:
    columns = {name: name for name in FIELDS} | dict(fields)

    def wrong(name: str, wanted: str) -> ValueError:
        column, there = columns[name], ", ".join(map(repr, row))
        what = "is missing"
        if column in row:
            what = f"is {row[column]!r:.80}, not {wanted}"
        if name == "answer" and isinstance(row.get(column), list):
            what, name = f"{what} (for a list use `answers`)", "answers"
        elif name == "answers" and isinstance(row.get(column), str):
            what, name = f"{what} (for one text use `answer`)", "answer"
        return ValueError(
            f"{where}: field {column!r} {what}; the row has {there or 'no columns'};"
            f" set config.data.fields to {{'{name}': 'COLUMN'}} (tools:"
            f" --fields {name}=COLUMN) to use another column"
        )

    def text(name: str) -> str:
        value = row.get(columns[name])
        if name == "answer":
            value = _as_text(value)
        if not _is_text(value):
            raise wrong(name, "text")
        return value

    answers = row.get(columns["answers"])
    # A column that was chosen as the answer is used instead of `answers`.
    chosen = "answer" in fields and row.get(fields["answer"]) is not None
    if answers is None or (chosen and "answers" not in fields):
        answers = [text("answer")]
    answers = list(map(_as_text, answers)) if isinstance(answers, list) else []
    if not answers or not all(map(_is_text, answers)):
        raise wrong("answers", "a list of texts")
    own_id, level = row.get(columns["id"]), row.get(columns["level"])
    if isinstance(level, float) and level.is_integer():  # as pandas writes integers
        level = int(level)
    if isinstance(level, str) and (found := _LEVEL.fullmatch(level)):
        level = None if found[1] == "?" else int(found[1])
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise wrong("level", "an integer (remove a column that has no levels)")
    rest = {k: v for k, v in row.items() if k not in columns.values()}
    meta = rest.pop("meta", None) or {}
    return Problem(
        id=default_id if own_id is None else str(own_id),
        problem=text("problem"),
        answers=tuple(answers),
        source=str(row.get(columns["source"]) or ""),
        level=level,
        meta={**rest, **(meta if isinstance(meta, dict) else {"meta": meta})},
    )


def _as_text(answer: Any) -> Any:
    """Converts a finite number to text; returns other values and bools unchanged."""
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return answer
    finite = isinstance(answer, int) or math.isfinite(answer)
    return repr(answer) if finite else answer
