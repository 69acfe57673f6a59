"""An evaluation's folder: what is in it, and how it is written and read back.

DIR/conditions.json     what was asked of which model, and how
DIR/problems/           of benchmarks that are not among the known ones
DIR/completions.jsonl   one row per completion, written as each ends
DIR/verdicts.jsonl      one row per completion: answer found, right or wrong
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rl.evaluate import Drawn, Scored
from rl.types import Problem


@contextlib.contextmanager
def opened(folder: pathlib.Path) -> Iterator[None]:
    """Holds the folder for one process; a second is refused.

    Raises:
      BlockingIOError: another process evaluates into it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"{folder}: another evaluation writes into it"
            ) from None
        yield


def record_conditions(folder: pathlib.Path, conditions: Mapping[str, Any]) -> None:
    """Writes conditions.json, or checks that a started evaluation has the same.

    Benchmarks may join later; whatever else differs would mix two evaluations.

    Raises:
      ValueError: naming the first key that differs, with both values.
    """
    wanted = json.loads(json.dumps(conditions))
    kept = read_conditions(folder)
    if kept is not None:
        benchmarks = kept["benchmarks"] | wanted["benchmarks"]
        for key, old, new in differences(
            kept, wanted | {"benchmarks": kept["benchmarks"] | wanted["benchmarks"]}
        ):
            if not (key.startswith("benchmarks.") and old is None):
                raise ValueError(
                    f"{folder} was begun with {key}={old!r}, now {new!r}: choose "
                    "another --out, or delete it"
                )
        wanted["benchmarks"] = benchmarks
    replace_file(folder / "conditions.json", json.dumps(wanted, indent=2) + "\n")


def read_conditions(folder: pathlib.Path) -> dict[str, Any] | None:
    """The conditions of an evaluation, None where none were recorded."""
    path = folder / "conditions.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def problems_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Where the problems of a benchmark that is not a known one are kept."""
    return folder / "problems" / f"{name}.jsonl"


def write_problems(
    folder: pathlib.Path, name: str, problems: Sequence[Problem]
) -> None:
    """Keeps the problems, so that the folder can be judged wherever it goes."""
    path = problems_file(folder, name)
    path.parent.mkdir(exist_ok=True)
    rows = [json.dumps(dataclasses.asdict(p), ensure_ascii=False) for p in problems]
    replace_file(path, "".join(row + "\n" for row in rows))


@contextlib.contextmanager
def appended(folder: pathlib.Path) -> Iterator[Callable[[str, Drawn], None]]:
    """Gives a function that keeps one more completion of a benchmark, at once."""
    path = folder / "completions.jsonl"
    _end_last_row(path)
    with open(path, "a", encoding="utf-8") as out:

        def keep(benchmark: str, drawn: Drawn) -> None:
            row = {"benchmark": benchmark} | dataclasses.asdict(drawn)
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            out.flush()

        yield keep


def read_completions(folder: pathlib.Path) -> dict[str, list[Drawn]]:
    """Kept completions by benchmark. A last row cut short by a kill does not count.

    Raises:
      ValueError: naming the row that is malformed or there twice.
    """
    path = folder / "completions.jsonl"
    if not path.exists():
        return {}
    kept: dict[str, dict[tuple[str, int], Drawn]] = {}
    for number, row in _rows(path):
        try:
            drawn = Drawn(
                id=row["id"],
                sample=row["sample"],
                completion=row["completion"],
                tokens=row.get("tokens"),
                finish_reason=row.get("finish_reason"),
            )
            benchmark = row["benchmark"]
        except KeyError as error:
            raise ValueError(f"{path}:{number}: no field {error}") from None
        if not isinstance(drawn.completion, str):
            raise ValueError(f"{path}:{number}: completion must be a text")
        of_benchmark = kept.setdefault(benchmark, {})
        if (drawn.id, drawn.sample) in of_benchmark:
            raise ValueError(
                f"{path}:{number}: {benchmark} {drawn.id} sample {drawn.sample} is "
                "there twice"
            )
        of_benchmark[drawn.id, drawn.sample] = drawn
    return {name: list(rows.values()) for name, rows in kept.items()}


def write_verdicts(
    folder: pathlib.Path, scored: Mapping[str, Sequence[Scored]]
) -> None:
    """Writes verdicts.jsonl whole: a reader never sees half of a judging."""
    rows = [
        {
            "benchmark": benchmark,
            "id": s.drawn.id,
            "sample": s.drawn.sample,
            "answer": s.answer,
            "correct": s.correct,
        }
        for benchmark, of_benchmark in scored.items()
        for s in of_benchmark
    ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    replace_file(folder / "verdicts.jsonl", text)


def read_verdicts(folder: pathlib.Path) -> dict[str, dict[str, list[bool]]]:
    """Verdicts by benchmark and problem id, in the order of samples.

    Raises:
      FileNotFoundError: the evaluation was never judged to its end.
    """
    path = folder / "verdicts.jsonl"
    if not path.exists():
        raise FileNotFoundError(
            f"{folder}: no verdicts.jsonl; finish the evaluation, or --rescore it"
        )
    verdicts: dict[str, dict[str, dict[int, bool]]] = {}
    for _, row in _rows(path):
        of_problem = verdicts.setdefault(row["benchmark"], {}).setdefault(row["id"], {})
        of_problem[row["sample"]] = row["correct"]
    return {
        benchmark: {
            id: [by_sample[sample] for sample in sorted(by_sample)]
            for id, by_sample in of_benchmark.items()
        }
        for benchmark, of_benchmark in verdicts.items()
    }


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            inner = f"{key}.{name}" if key else name
            yield from differences(old.get(name), new.get(name), inner)
    elif old != new:
        yield key, old, new


def replace_file(path: pathlib.Path, text: str) -> None:
    """Replaces a file in one step."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _end_last_row(path: pathlib.Path) -> None:
    """Makes a file ready for the next row: completes the last one, or cuts it off."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        data = file.read()
        start = data.rfind(b"\n") + 1
        if start == len(data):
            return
        if _is_json(data[start:]):
            file.write(b"\n")
        else:
            file.truncate(start)


def _rows(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") and not _is_json(line):
                return
            try:
                yield number, json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}:{number}: not UTF-8 ({error.reason})"
                ) from None
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not JSON ({error.msg})") from None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8"))
    except ValueError:
        return False
    return True
