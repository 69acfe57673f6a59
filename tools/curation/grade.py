"""What completions say of a problem: how hard it is, and whether its gold holds.

They lie where `tools.evaluate` keeps its own: drawn once, judged as often as one likes.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rl.evaluate import Scored, by_problem
from rl.statistics import wilson_interval
from tools.curation.levels import percentile_levels

NAME = "graded"  # what completions are kept under, as those of a benchmark are


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What the completions of a problem say of it."""

    samples: int  # completions drawn
    correct: int
    unparsable: int  # in which no answer was found
    truncated: int  # that ran out of tokens
    majority: str | None  # the answer that most gave, None where none was found
    agreement: float  # share of the completions that gave it
    against_gold: bool  # whether it is judged wrong


def make_grades(
    scored: Sequence[Scored], classes: Mapping[str, Sequence[int | None]]
) -> dict[str, Grade]:
    """A grade of each problem from its judged completions.

    `classes` has for each problem, per completion, the class of equivalent answers that
    its answer is of, None without one; see `answer_classes`.
    """
    grades = {}
    for id, group in by_problem(scored).items():
        votes = collections.Counter(kind for kind in classes[id] if kind is not None)
        leader, count = votes.most_common(1)[0] if votes else (None, 0)
        first = group[classes[id].index(leader)] if votes else None
        grades[id] = Grade(
            samples=len(group),
            correct=sum(s.correct for s in group),
            unparsable=sum(s.answer is None for s in group),
            truncated=sum(s.drawn.finish_reason == "length" for s in group),
            majority=first.answer if first else None,
            agreement=count / len(group),
            against_gold=first is not None and first.verdict.correct is False,
        )
    return grades


def graded_rows(
    rows: Sequence[Mapping[str, Any]],
    grades: Mapping[str, Grade],
    level_source: str | None,
) -> list[dict[str, Any]]:
    """The rows with solve rates, what speaks for them and, if asked for, levels.

    Rows without a grade keep the rate they have. `level_source` names a scale of fifths
    of the solve rates, 1 the most solved; None: the rows keep their levels.
    """
    result = [dict(row) for row in rows]
    for row in result:
        if grade := grades.get(row["id"]):
            interval = wilson_interval(grade.correct, grade.samples)
            row["solve_rate"] = grade.correct / grade.samples
            row["solve_interval"] = [round(edge, 6) for edge in interval]
            row["graded"] = dataclasses.asdict(grade)
    if level_source is not None:
        levels = percentile_levels([row.get("solve_rate") for row in result])
        for row, level in zip(result, levels, strict=True):
            row["level"] = level
            row["level_source"] = level_source if level is not None else None
    return result
