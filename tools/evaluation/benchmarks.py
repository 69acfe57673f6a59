"""Reads evaluation sets: known ones by name, checked, or any file of problems.

Rows are read by `rl.problems.reading.read_problems`. In a row's `meta`, `error` is an
absolute tolerance, `subject` its field of mathematics.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rl.files import HUB, fetched
from rl.problems.reading import read_problems
from rl.types import Problem
from tools.evaluation.perturbed import perturbed_problems

PERTURBED = "perturbed:"


class Benchmark(NamedTuple):
    """Describes a known benchmark.

    Attributes:
      title: as tables print it.
      rows: how many problems.
      sha256: `content_hash` of its problems; empty if no copy was available, so that
        only the number of rows is checked.
    """

    title: str
    rows: int
    sha256: str = ""


# AMC is the 83 problems of AMC 12 2022 and 2023, OlympiadBench its 675 open-ended
# text-only English mathematics problems: the sets of understand-r1-zero's harness.
# AIME 2025 is both papers, HMMT that of February 2025.
BENCHMARKS = {
    "aime2024": Benchmark(
        "AIME 2024",
        30,
        "03107dabf5239989039d3b5a27f2129441de79207ef0d627ab94fd11d447d038",
    ),
    "amc83": Benchmark(
        "AMC", 83, "c5d634104850cc1d4b8d365de04f5c593d0fd3fcb8f7761ded0a636cc87d5c18"
    ),
    "math500": Benchmark(
        "MATH-500",
        500,
        "ca46a572f5da330c5a1c238327af89b8b87ae9221530a8d4a161c369d3f7d804",
    ),
    "minerva272": Benchmark(
        "Minerva",
        272,
        "ef8f77c16b5c65e2a593ffbcf1ddd3a0751183c8724f35b048e037c607c50715",
    ),
    "olympiadbench675": Benchmark(
        "OlympiadBench",
        675,
        "3e4f0876f42bd2bfc4d9ace04d8b05ea38ab7c0ac2087f48e33c3e56e22b1b83",
    ),
    "gsm8k_test": Benchmark(
        "GSM8K",
        1319,
        "a5a667f5f579c138a165693db44fc3fc12456641338c7974fab58e6ac554b333",
    ),
    "aime2025": Benchmark("AIME 2025", 30),
    "hmmt2025": Benchmark("HMMT 2025", 30),
}


def benchmark_name(spec: str) -> str:
    """Returns the short name of a benchmark's spec: itself, or the stem of its file."""
    if spec.startswith(PERTURBED):
        original, date = _original(spec)
        return f"{benchmark_name(original)}@{date}"
    return spec if spec in BENCHMARKS else pathlib.PurePosixPath(spec).stem


def title(name: str) -> str:
    """Returns the name of a benchmark in tables."""
    of, _, date = name.partition("@")
    if of not in BENCHMARKS:
        return name
    return BENCHMARKS[of].title + (f", other numbers ({date})" if date else "")


def _original(spec: str) -> tuple[str, str]:
    """Returns the spec of the benchmark that gets other numbers, and the date."""
    original, _, date = spec.removeprefix(PERTURBED).rpartition(":")
    if not original:
        raise ValueError(f"{spec}: give perturbed:BENCHMARK:DATE")
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
      spec: a name of `BENCHMARKS`, the path of a JSONL file, a hub file as
        `hf://OWNER/DATASET/PATH.jsonl`, or `perturbed:SPEC:DATE`
        (`perturbed_problems`).
      data_dir: holds NAME.jsonl or eval/NAME.jsonl; needed for names only.
      fields: our field names to a JSONL file's, where they differ.
      limit: its first problems; of perturbed ones those made from its first.

    Raises:
      ValueError: an unknown name, a malformed row, or a known name whose file has
        another number of rows.
      FileNotFoundError: naming the file that was looked for.
    """
    if spec.startswith(PERTURBED):
        original, date = _original(spec)
        try:
            known = load_benchmark(original, data_dir, limit=limit)
            return perturbed_problems(known, date)
        except ValueError as error:
            raise ValueError(f"{spec}: {error}") from None
    if spec in BENCHMARKS:
        return _known(spec, data_dir)[:limit]
    if spec.startswith(HUB) or spec.endswith(".jsonl"):
        return read_problems(fetched(spec), fields)[:limit]
    raise ValueError(
        f"benchmark {spec!r}: give one of {', '.join(BENCHMARKS)}, a .jsonl file,"
        f" {HUB}OWNER/DATASET/FILE.jsonl, or {PERTURBED}BENCHMARK:DATE"
    )


def _known(name: str, data_dir: pathlib.Path | None) -> list[Problem]:
    if data_dir is None:
        raise ValueError(f"benchmark {name!r}: --data_dir must say where its file is")
    candidates = [data_dir / f"{name}.jsonl", data_dir / "eval" / f"{name}.jsonl"]
    path = next(filter(pathlib.Path.is_file, candidates), None)
    if path is None:
        raise FileNotFoundError(f"benchmark {name!r}: no file {candidates[0]}")
    problems, rows = read_problems(path), BENCHMARKS[name].rows
    if len(problems) != rows:
        raise ValueError(
            f"{path}: {len(problems)} rows instead of {rows}: not the benchmark {name};"
            " to use it as a set of your own, give its path"
        )
    return problems


def content_hash(problems: Iterable[Problem]) -> str:
    """Returns SHA-256 over problems and accepted answers in order.

    A copy with other line ends, key order, escapes or metadata has the same hash.
    """
    digest = hashlib.sha256()
    for problem in problems:
        row = [problem.problem, list(problem.answers)]
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def is_another_copy(name: str, problems: Sequence[Problem]) -> bool:
    """Returns whether problems or answers differ from the known benchmark's."""
    known = BENCHMARKS[name].sha256 if name in BENCHMARKS else ""
    return bool(known) and content_hash(problems) != known


def made_from(name: str, problems: Mapping[str, Sequence[Problem]]) -> str | None:
    """Returns the set, among those by name, that one was made from with new numbers."""
    original = name.rpartition("@")[0]
    known = {problem.id: problem.problem for problem in problems.get(original, ())}
    some = any(known.get(p.id) == p.meta.get("from", "") for p in problems[name])
    return original if some else None
