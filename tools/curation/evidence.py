"""Reads evidence that a gold answer is right: independent solvers gave the same answer.

A solver that is independent of the gold rarely gives the same wrong answer. Public sets
have columns with results of solvers; `COLUMNS` describes how to read them.
"""

import collections
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rl.files import read_rows
from rl.statistics import wilson_interval
from rl.verifier import extract_answer, is_equivalent
from tools.curation.formats import at
from tools.page import is_number

# by source: the number of golds checked by hand and the number of wrong ones
Readings = Mapping[str, tuple[int, int]]
Kind = Literal["solve_rate", "verified_solutions", "agreement", "graded"]
# minimum strength at which solvers understand the problem: 3 of 3, or 11 of 16
SOLVED = 0.4
RATES = ("solve_rate", "graded")  # kinds of evidence that also measure difficulty
_interval = functools.cache(wilson_interval)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Records that `correct` of `samples` attempts by one solver gave the gold."""

    kind: Kind
    by: str  # name of the solver: a model, or the origins that agree
    correct: int  # number of attempts that gave the gold
    samples: int  # number of attempts
    source: str  # column of the row; for an agreement, the ids of the other rows

    @property
    def rate(self) -> float:
        return self.correct / self.samples

    @property
    def strength(self) -> float:
        """Returns the lower end of the 95% interval of `rate`; 0 if `rate` is 0."""
        return _interval(self.correct, self.samples)[0] if self.correct else 0.0


class Column(NamedTuple):
    """Describes a column with results of a solver and how to read it."""

    path: str  # path of the column in a row
    kind: Kind
    by: str  # name of the solver; "" means the name of the row's source
    samples: int  # number of attempts, if the value does not contain it
    # What the value is, in the order of the forms: the share of correct attempts, the
    # number of wrong attempts, "3/8", one boolean per attempt, a solution, or the
    # `graded` of tools.grade.
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
    # POLARIS: a text such as "3/8".
    Column("difficulty", "solve_rate", _DISTILLED[1], 8, "fraction"),
    # OpenR1-Math: one boolean for each completion.
    Column("correctness_math_verify", "verified_solutions", _R1, 1, "flags"),
    # DeepMath: three solutions; `_counts` compares their answers with the gold.
    *(Column(name, "verified_solutions", _R1, 1, "solution") for name in _SOLUTIONS),
    # tools.grade, and files with a rate but without its number of samples.
    Column("graded", "graded", "tools.grade", 16, "grade"),
    Column("solve_rate", "solve_rate", "", 16, "rate"),
)

# columns that are not copied to `meta`
BULKY = ("generations", "messages", "evidence", *_SOLUTIONS)


def read_evidence(
    record: Mapping[str, Any], golds: Sequence[str], source: str
) -> list[Evidence]:
    """Returns the evidence for the `golds` of a row, one entry per kind and solver.

    `record` is the row as a JSON object, `source` the name of its set. If its column
    `evidence` has entries of an earlier curation, only this and `graded` are read.
    """
    found: dict[tuple[Kind, str], Evidence] = {}
    entries = record.get("evidence")
    for given in entries if isinstance(entries, list) else ():  # already curated
        with contextlib.suppress(TypeError):
            one = Evidence(**given)
            found[one.kind, one.by] = one
    curated = bool(found)
    for column in COLUMNS:
        path, kind, by = column.path, column.kind, column.by or source
        if curated and column.form != "grade":
            continue
        if counts := _counts(at(record, path), column, golds):
            n, of = counts
            if column.form == "solution" and (before := found.get((kind, by))):
                n, of = before.correct + n, before.samples + of
            found[kind, by] = Evidence(
                kind=kind, by=by, correct=n, samples=of, source=path
            )
    if any(one.kind == "graded" for one in found.values()):
        found.pop(("solve_rate", source), None)  # the same completions
    return list(found.values())


def _counts(value: Any, column: Column, golds: Sequence[str]) -> tuple[int, int] | None:
    """Returns (correct, attempts), or None if the value is missing or invalid."""
    n = column.samples
    match column.form:
        case "rate" if is_number(value) and 0 <= value <= 1:
            return round(value * n), n
        case "failures" if is_number(value) and 0 <= value <= n:
            return n - round(value), n
        case "fraction" if isinstance(value, str):
            correct, slash, samples = value.partition("/")
            if slash and correct.isdecimal() and samples.isdecimal():
                if int(correct) <= int(samples) > 0:
                    return int(correct), int(samples)
        case "flags" if isinstance(value, Sequence) and value:
            if all(isinstance(flag, bool) for flag in value):
                return sum(value), len(value)
        case "solution" if isinstance(value, str) and value:
            answer = extract_answer(value)
            right = answer and any(is_equivalent(answer, gold) for gold in golds)
            return int(bool(right)), 1
        case "grade" if isinstance(value, Mapping):
            solved, tried = value.get("correct"), value.get("samples")
            if is_number(solved) and is_number(tried) and 0 <= solved <= tried > 0:
                return int(solved), int(tried)
    return None


def load_readings(path: str) -> Readings:
    """Returns (golds checked by hand, wrong golds among them) by source.

    `path` is a JSONL file with rows `{"source": TEXT, "wrong": BOOL}`; "" gives {}.
    """
    counts: dict[str, tuple[int, int]] = collections.defaultdict(lambda: (0, 0))
    fields = {"source": str, "wrong": bool}
    for _, row in read_rows(pathlib.Path(path), fields=fields) if path else ():
        read, bad = counts[row["source"]]
        counts[row["source"]] = read + 1, bad + row["wrong"]
    return dict(counts)
