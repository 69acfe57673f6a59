"""The evaluation sets: by name and checked, or any JSONL file or hub file of problems.

Rows are read by `rl.problems.reading.read_problems`. In a row's `meta`, `error` is an
absolute tolerance, `subject` its field of mathematics.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence

from rl.files import download
from rl.problems.reading import read_problems
from rl.types import Problem
from tools.evaluation.clean import clean_problems

CLEAN = "clean:"


@dataclasses.dataclass(frozen=True, slots=True)
class Benchmark:
    """What the file of a known benchmark must hold.

    Attributes:
      title: as tables print it.
      rows: how many problems.
      sha256: `content_hash` of its problems; empty where no copy was at hand to take
        it from, so that only the number of rows is checked.
    """

    title: str
    rows: int
    sha256: str = ""


# AMC is the 83 problems of AMC 12 2022 and 2023, OlympiadBench its 675 open-ended
# text-only English mathematics problems: the sets of understand-r1-zero's harness.
BENCHMARKS = {
    "aime2024": Benchmark(
        "AIME 2024",
        30,
        "03107dabf5239989039d3b5a27f2129441de79207ef0d627ab94fd11d447d038",
    ),
    "amc83": Benchmark(
        "AMC",
        83,
        "c5d634104850cc1d4b8d365de04f5c593d0fd3fcb8f7761ded0a636cc87d5c18",
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
    # Both papers of AIME 2025; HMMT of February 2025.
    "aime2025": Benchmark("AIME 2025", 30),
    "hmmt2025": Benchmark("HMMT 2025", 30),
}


def benchmark_name(spec: str) -> str:
    """The short name of a benchmark's spec: itself, or the stem of its file."""
    if spec.startswith(CLEAN):
        return spec.replace(":", "-")
    return spec if spec in BENCHMARKS else pathlib.PurePosixPath(spec).stem


def title(name: str) -> str:
    """How tables print a benchmark."""
    return BENCHMARKS[name].title if name in BENCHMARKS else name


def load_benchmark(spec: str, data_dir: pathlib.Path | None = None) -> list[Problem]:
    """Reads the problems of one benchmark.

    Args:
      spec: a name of `BENCHMARKS`, the path of a JSONL file, a hub file as
        `hf://OWNER/DATASET/PATH.jsonl`, or `clean:DATE` (`clean_problems`).
      data_dir: holds NAME.jsonl or eval/NAME.jsonl; needed for names only.

    Raises:
      ValueError: an unknown name, a malformed row, or a known name whose file does not
        hold that benchmark.
      FileNotFoundError: naming the file that was looked for.
    """
    if spec in BENCHMARKS:
        path = _find(spec, data_dir)
        problems = read_problems(path)
        _check(spec, problems, path)
        return problems
    if spec.startswith(CLEAN):
        return clean_problems(spec.removeprefix(CLEAN))
    if spec.startswith("hf://"):
        return read_problems(download(spec))
    if spec.endswith(".jsonl"):
        return read_problems(pathlib.Path(spec))
    raise ValueError(
        f"benchmark {spec!r}: neither one of {', '.join(BENCHMARKS)} nor a .jsonl file"
    )


def content_hash(problems: Iterable[Problem]) -> str:
    """SHA-256 over problems and accepted answers in order, whatever their file's form.

    A copy with other line ends, key order, escapes or metadata has the same hash.
    """
    digest = hashlib.sha256()
    for problem in problems:
        row = [problem.problem, list(problem.answers)]
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def _find(name: str, data_dir: pathlib.Path | None) -> pathlib.Path:
    if data_dir is None:
        raise ValueError(f"benchmark {name!r}: --data_dir must say where its file is")
    candidates = [data_dir / f"{name}.jsonl", data_dir / "eval" / f"{name}.jsonl"]
    for path in candidates:
        if path.is_file():
            return path
    raise FileNotFoundError(f"benchmark {name!r}: no file {candidates[0]}")


def _check(name: str, problems: Sequence[Problem], path: pathlib.Path) -> None:
    expected = BENCHMARKS[name]
    advice = f"not the benchmark {name}; to use it as a set of your own, give its path"
    if len(problems) != expected.rows:
        raise ValueError(
            f"{path}: {len(problems)} rows instead of {expected.rows}: {advice}"
        )
    found = content_hash(problems)
    if expected.sha256 and found != expected.sha256:
        raise ValueError(
            f"{path}: content hash {found[:12]} instead of {expected.sha256[:12]}, a "
            f"problem or an answer differs: {advice}"
        )
