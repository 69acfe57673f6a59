"""Reads evidence that a gold is right: independent solvers arrived at it.

A wrong gold is rarely matched by a solver that had no part in making it. Public sets
publish such results in their columns; `COLUMNS` maps them to one record. What counts is
the lower end of the interval of the solve rate, so counts of any size compare.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rl.statistics import wilson_interval
from rl.verifier import extract_answer, is_equivalent
from tools.page import is_number

Kind = Literal["solve_rate", "verified_solutions", "agreement", "graded"]
SOLVED = 0.5
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


class Column(NamedTuple):
    """Says where a set publishes results and how to read them."""

    path: tuple[str, ...]
    kind: Kind
    by: str
    samples: int  # attempts that a rate or a count refers to, where the row gives none
    says: Literal["rate", "failures", "fraction", "flags", "solution", "grade"]


_R1, _INFO = "DeepSeek-R1", ("extra_info",)
_DISTILLED = [f"DeepSeek-R1-Distill-Qwen-{size}" for size in ("1.5B", "7B", "32B")]

COLUMNS = (
    # Big-Math: 64 attempts (arXiv 2502.17387).
    Column(("llama8b_solve_rate",), "solve_rate", "Llama-3.1-8B", 64, "rate"),
    # GURU: 16 attempts of two models (arXiv 2506.14965).
    Column((*_INFO, "qwen2.5_7b_pass_rate"), "solve_rate", "Qwen2.5-7B", 16, "rate"),
    Column((*_INFO, "qwen3_30b_pass_rate"), "solve_rate", "Qwen3-30B-A3B", 16, "rate"),
    # Skywork-OR1: failures in 16 attempts of three models.
    *(
        Column((*_INFO, "model_difficulty", name), "solve_rate", name, 16, "failures")
        for name in _DISTILLED
    ),
    # POLARIS: "3/8".
    Column(("difficulty",), "solve_rate", _DISTILLED[1], 8, "fraction"),
    # OpenR1-Math: one flag for each generation.
    Column(("correctness_math_verify",), "verified_solutions", _R1, 1, "flags"),
    # DeepMath: three solutions, whose answers are compared with the gold here.
    *(
        Column((f"r1_solution_{n}",), "verified_solutions", _R1, 1, "solution")
        for n in (1, 2, 3)
    ),
    # tools.grade, and files with a rate whose sample size they do not give.
    Column(("graded",), "graded", "tools.grade", 16, "grade"),
    Column(("solve_rate",), "solve_rate", "", 16, "rate"),
)

BULKY = (
    "generations",
    "messages",
    "evidence",
    *(f"r1_solution_{n}" for n in (1, 2, 3)),
)
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
    for column in COLUMNS if not found else ():
        value: Any = record
        for key in column.path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if (counts := _counts(value, column, golds)) is None:
            continue
        one = Evidence(
            kind=column.kind,
            by=column.by or source,
            correct=counts[0],
            samples=counts[1],
            source=".".join(column.path),
        )
        before = found.get((one.kind, one.by))
        if before and column.says == "solution":
            correct, samples = before.correct + one.correct, before.samples + 1
            one = dataclasses.replace(before, correct=correct, samples=samples)
        found[one.kind, one.by] = one
    if any(one.kind == "graded" for one in found.values()):
        found.pop(("solve_rate", source), None)  # the same completions
    return list(found.values())


def _counts(value: Any, column: Column, golds: Sequence[str]) -> tuple[int, int] | None:
    """Returns (correct, attempts), or None if the column says nothing."""
    n = column.samples
    match column.says:
        case "rate" if is_number(value) and 0 <= value <= 1:
            return round(value * n), n
        case "failures" if is_number(value) and 0 <= value <= n:
            return n - round(value), n
        case "fraction" if isinstance(value, str):
            correct, slash, samples = value.partition("/")
            if slash and correct.isdigit() and samples.isdigit():
                return (int(correct), int(samples)) if int(samples) else None
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
            if is_number(solved) and is_number(tried) and 0 <= solved <= tried:
                return (int(solved), int(tried)) if tried else None
    return None


def strength(evidence: Iterable[Evidence]) -> float:
    """Returns the strength of the strongest entry, 0 without any."""
    return max((one.strength for one in evidence), default=0.0)
