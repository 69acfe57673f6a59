"""Reads evidence that a gold is right: independent solvers arrived at it.

A wrong gold is rarely matched by a solver that had no part in making it. Public sets
publish such results in their columns; `COLUMNS` maps them to one record. The strength
of evidence is the lower end of the interval of the solve rate, so that counts of any
size compare.
"""

import collections
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rl.files import read_rows
from rl.statistics import wilson_interval
from rl.verifier import extract_answer, is_equivalent
from tools.page import is_number

Readings = Mapping[str, tuple[int, int]]
"""Source -> golds that were checked by hand, and how many of them were wrong."""

Kind = Literal["solve_rate", "verified_solutions", "agreement", "graded"]
SOLVED = 0.4  # 3 of 3, or 11 of 16
"""Strength from which on solvers are known to understand what is asked."""

RATES = ("solve_rate", "graded")
"""Kinds that measure difficulty; the others only support the gold."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Records that `correct` of `samples` attempts by one solver gave the gold."""

    kind: Kind
    by: str  # the model, or the set that states the same answer
    correct: int
    samples: int
    source: str  # the column, or the id of the other row

    @property
    def rate(self) -> float:
        return self.correct / self.samples

    @property
    def strength(self) -> float:
        """Returns the lower end of the 95% interval of the rate; 0 if never solved."""
        return _lower_end(self.correct, self.samples)


@functools.cache
def _lower_end(correct: int, samples: int) -> float:
    return wilson_interval(correct, samples)[0] if correct else 0.0


def strength(evidence: Iterable[Evidence]) -> float:
    """Returns the strength of the strongest entry, 0 without any."""
    return max((one.strength for one in evidence), default=0.0)


class Column(NamedTuple):
    """Says where a set publishes results and how to read them."""

    path: str
    kind: Kind
    by: str
    samples: int  # attempts that a rate or a count refers to, where the row gives none
    form: Literal["rate", "failures", "fraction", "flags", "solution", "grade"]


_R1 = "DeepSeek-R1"
_DISTILLED = [f"DeepSeek-R1-Distill-Qwen-{size}" for size in ("1.5B", "7B", "32B")]
_GURU, _SKYWORK = "extra_info.{}_pass_rate", "extra_info.model_difficulty.{}"
_SOLUTIONS = [f"r1_solution_{n}" for n in (1, 2, 3)]

COLUMNS = (
    # Big-Math: 64 attempts (arXiv 2502.17387).
    Column("llama8b_solve_rate", "solve_rate", "Llama-3.1-8B", 64, "rate"),
    # GURU: 16 attempts of two models (arXiv 2506.14965).
    Column(_GURU.format("qwen2.5_7b"), "solve_rate", "Qwen2.5-7B", 16, "rate"),
    Column(_GURU.format("qwen3_30b"), "solve_rate", "Qwen3-30B-A3B", 16, "rate"),
    # Skywork-OR1: failures in 16 attempts of three models.
    *(
        Column(_SKYWORK.format(name), "solve_rate", name, 16, "failures")
        for name in _DISTILLED
    ),
    # POLARIS: "3/8".
    Column("difficulty", "solve_rate", _DISTILLED[1], 8, "fraction"),
    # OpenR1-Math: one flag for each generation.
    Column("correctness_math_verify", "verified_solutions", _R1, 1, "flags"),
    # DeepMath: three solutions, whose answers are compared with the gold here.
    *(Column(name, "verified_solutions", _R1, 1, "solution") for name in _SOLUTIONS),
    # tools.grade, and files with a rate whose sample size they do not give.
    Column("graded", "graded", "tools.grade", 16, "grade"),
    Column("solve_rate", "solve_rate", "", 16, "rate"),
)

BULKY = ("generations", "messages", "evidence", *_SOLUTIONS)
"""Columns that are not kept in `meta`: whole solutions, and what is read here."""


def read_evidence(
    record: Mapping[str, Any], golds: Sequence[str], source: str
) -> list[Evidence]:
    """Returns what the columns of a row say about its gold, one entry per solver."""
    found: dict[tuple[Kind, str], Evidence] = {}
    for given in record.get("evidence") or ():  # of rows that were curated before
        with contextlib.suppress(TypeError):
            one = Evidence(**given)
            found[one.kind, one.by] = one
    curated = bool(found)
    for column in COLUMNS:
        if curated and column.form != "grade":
            continue
        counts = _counts(_at(record, column.path), column, golds)
        if counts is None:
            continue
        key = column.kind, column.by or source
        correct, samples = counts
        if column.form == "solution" and (before := found.get(key)):
            correct, samples = before.correct + correct, before.samples + samples
        found[key] = Evidence(
            kind=column.kind,
            by=key[1],
            correct=correct,
            samples=samples,
            source=column.path,
        )
    if any(one.kind == "graded" for one in found.values()):
        found.pop(("solve_rate", source), None)  # the same completions
    return list(found.values())


def _at(record: Any, path: str) -> Any:
    """Returns the value at a path; the last keys may have full stops themselves."""
    while isinstance(record, Mapping) and path not in record:
        key, _, path = path.partition(".")
        record = record.get(key)
    return record[path] if isinstance(record, Mapping) else None


def _counts(value: Any, column: Column, golds: Sequence[str]) -> tuple[int, int] | None:
    """Returns (correct, attempts), or None if the column says nothing."""
    n = column.samples
    match column.form:
        case "rate" if is_number(value) and 0 <= value <= 1:
            return round(value * n), n
        case "failures" if is_number(value) and 0 <= value <= n:
            return n - round(value), n
        case "fraction" if isinstance(value, str):
            correct, slash, samples = value.partition("/")
            if slash and correct.isdigit() and samples.isdigit() and int(samples):
                return int(correct), int(samples)
        case "flags" if isinstance(value, Sequence) and value:
            if all(isinstance(flag, bool) for flag in value):
                return sum(value), len(value)
        case "solution" if isinstance(value, str) and value:
            answer = extract_answer(value)
            right = answer and any(is_equivalent(answer, gold) for gold in golds)
            return int(bool(right)), 1
        case "grade" if isinstance(value, Mapping):
            solved: Any = value.get("correct")
            tried: Any = value.get("samples")
            if is_number(solved) and is_number(tried) and 0 <= solved <= tried > 0:
                return int(solved), int(tried)
    return None


def load_readings(path: str) -> Readings:
    """Counts a JSONL file of checked golds, `{"source": ..., "wrong": true}` each.

    Raises:
      ValueError: a row lacks one of the two; the message names file and line.
    """
    counts: dict[str, tuple[int, int]] = collections.defaultdict(lambda: (0, 0))
    for where, row in read_rows(pathlib.Path(path)) if path else ():
        source, wrong = row.get("source"), row.get("wrong")
        if not isinstance(source, str) or not isinstance(wrong, bool):
            raise ValueError(f'{where}: needs "source": text and "wrong": true/false')
        read, bad = counts[source]
        counts[source] = read + 1, bad + wrong
    return dict(counts)
