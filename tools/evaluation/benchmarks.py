"""Reads evaluation sets: known benchmarks by name, or any file of problems.

`rl.problems.reading.read_problems` reads the rows. In the `meta` of a row, `error` is
an absolute tolerance and `subject` the field of mathematics.
"""

import hashlib
import json
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rl.files import HUB, fetched
from rl.problems.reading import read_problems
from rl.types import Problem
from tools.evaluation.perturbed import perturbed_problems

PERTURBED = "perturbed:"


class Benchmark(NamedTuple):
    title: str  # name in tables
    rows: int  # number of problems
    # First digits of `content_hash`; empty if no copy of the problems was available, so
    # that only the number of rows is checked.
    sha256: str = ""


# AMC has the 83 problems of AMC 12 2022 and 2023. OlympiadBench has its 675 open-ended,
# text-only mathematics problems in English. Both are the sets of understand-r1-zero.
# AIME 2025 has both exams (I and II), and HMMT 2025 has the February contest.
BENCHMARKS = {
    "aime2024": Benchmark("AIME 2024", 30, "03107dabf5239989"),
    "amc83": Benchmark("AMC", 83, "c5d634104850cc1d"),
    "math500": Benchmark("MATH-500", 500, "ca46a572f5da330c"),
    "minerva272": Benchmark("Minerva", 272, "ef8f77c16b5c65e2"),
    "olympiadbench675": Benchmark("OlympiadBench", 675, "3e4f0876f42bd2bf"),
    "gsm8k_test": Benchmark("GSM8K", 1319, "a5a667f5f579c138"),
    "aime2025": Benchmark("AIME 2025", 30),
    "hmmt2025": Benchmark("HMMT 2025", 30),
}


def benchmark_name(spec: str) -> str:
    """Returns the name of a known set, a file's stem, or NAME@DATE if perturbed."""
    if spec.startswith(PERTURBED):
        original, date = _original(spec)
        return f"{benchmark_name(original)}@{date}"
    return spec if spec in BENCHMARKS else pathlib.PurePosixPath(spec).stem


def title(name: str) -> str:
    of, _, date = name.partition("@")
    if of not in BENCHMARKS:
        return name
    return BENCHMARKS[of].title + (f", new numbers ({date})" if date else "")


def _original(spec: str) -> tuple[str, str]:
    original, _, date = spec.removeprefix(PERTURBED).rpartition(":")
    if not original:
        raise ValueError(f"{spec}: must be perturbed:BENCHMARK:DATE")
    return original, date


def load_benchmark(
    spec: str,
    data_dir: pathlib.Path | None = None,
    *,
    limit: int | None = None,
    fields: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Reads the problems of one benchmark.

    Args:
      spec: a name of `BENCHMARKS`, the path of a JSONL file, a hub file
        `hf://OWNER/DATASET/PATH.jsonl`, or `perturbed:SPEC:DATE`.
      data_dir: folder with NAME.jsonl or eval/NAME.jsonl, for names of `BENCHMARKS`.
      limit: number of problems to read from the start. A perturbed set is made from
        the first `limit` problems of its original.
      fields: maps names of fields to columns of the file, if the names differ.

    Raises:
      FileNotFoundError: `data_dir` lacks the file of a known benchmark.
      ValueError: the spec or a file is not valid, or a file is missing.
    """
    if spec.startswith(PERTURBED):
        original, date = _original(spec)
        try:
            known = load_benchmark(original, data_dir, limit=limit, fields=fields)
            return perturbed_problems(known, date)
        except ValueError as error:
            raise ValueError(f"{spec}: {error}") from None
    if spec in BENCHMARKS:
        return _known(spec, data_dir)[:limit]
    if spec.startswith(HUB) or spec.endswith(".jsonl"):
        problems = read_problems(fetched(spec), fields=fields)
        if (name := benchmark_name(spec)) in BENCHMARKS and _differs(name, problems):
            published = f"the published {title(name)}"
            print(f"WARNING: {spec}: differs from {published}", file=sys.stderr)
        return problems[:limit]
    raise ValueError(
        f"benchmark {spec!r}: must be one of {', '.join(BENCHMARKS)}, a .jsonl file,"
        f" {HUB}OWNER/DATASET/FILE.jsonl, {PERTURBED}BENCHMARK:DATE, or held_out (only"
        " in --benchmarks of tools.evaluate)"
    )


def _known(name: str, data_dir: pathlib.Path | None) -> list[Problem]:
    if data_dir is None:
        raise ValueError(
            f"benchmark {name!r}: give the folder with its file as --data_dir"
        )
    candidates = [data_dir / f"{name}.jsonl", data_dir / "eval" / f"{name}.jsonl"]
    path = next(filter(pathlib.Path.is_file, candidates), None)
    if path is None:
        raise FileNotFoundError(
            f"benchmark {name!r}: neither {candidates[0]} nor {candidates[1]} exists;"
            " download it with tools.fetch, or correct --data_dir (tools.curate:"
            " config.data_dir)"
        )
    problems = read_problems(path)
    if _differs(name, problems):
        raise ValueError(
            f"{path}: differs from the published {name}, which has"
            f" {BENCHMARKS[name].rows} rows; download it with tools.fetch, or, to use"
            " this copy, give its path"
        )
    return problems


def _differs(name: str, problems: Sequence[Problem]) -> bool:
    known = BENCHMARKS[name]
    same = content_hash(problems).startswith(known.sha256)
    return len(problems) != known.rows or not same


def content_hash(problems: Iterable[Problem]) -> str:
    """Returns the SHA-256 hash of the problem texts and accepted answers, in order."""
    rows = ([problem.problem, problem.answers] for problem in problems)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def made_from(name: str, problems: Mapping[str, Sequence[Problem]]) -> str | None:
    """Returns the name of a perturbed set's original; None if not in `problems`."""
    original = name.rpartition("@")[0]
    known = {problem.id: problem.problem for problem in problems.get(original, ())}
    some = any(known.get(p.id) == p.meta.get("from", "") for p in problems[name])
    return original if some else None
