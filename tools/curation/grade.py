"""Solve rates: k completions per problem, judged, kept problem by problem."""

import collections
import contextlib
import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rl.evaluate import Decode, Drawn, Scored, score
from rl.files import Rows, read_rows
from rl.reward.score import Reward
from rl.statistics import wilson_interval
from rl.types import Problem
from rollout.types import Sampler
from tools.curation.levels import percentile_levels
from tools.evaluation.run import Conditions, draw_missing


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """How often a model solves a problem.

    Attributes:
      id: of the problem.
      samples: completions drawn.
      correct: right ones among them.
      truncated: completions that ran out of tokens.
      tokens: of all completions together.
    """

    id: str
    samples: int
    correct: int
    truncated: int
    tokens: int

    @property
    def solve_rate(self) -> float:
        """The share of right completions: unbiased for independent draws."""
        return self.correct / self.samples

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Wilson's interval: not empty even where none or all are right."""
        return wilson_interval(self.correct, self.samples, confidence)


def grade_missing(
    path: pathlib.Path,
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    *,
    conditions: Conditions,
    stop_token_ids: tuple[int, ...],
    sampler: Sampler,
    decode: Decode,
    judge: Reward,
    on_graded: Callable[[Grade], None] = lambda grade: None,
) -> None:
    """Grades what `path` does not hold yet; a problem is written when it is judged.

    Args:
      path: JSONL of grades, appended to.
      judge: texts and their problems to scores, in order.
      on_graded: told of each grade as it is written.
      Others: see `tools.evaluation.run.draw_missing`.
    """
    of_id = {problem.id: problem for problem in problems}
    waiting: dict[str, list[Drawn]] = collections.defaultdict(list)
    graded = [grade.id for grade in read_grades(path)]
    with contextlib.closing(Rows(path)) as out:

        def keep(drawn: Drawn) -> None:
            waiting[drawn.id].append(drawn)
            if len(waiting[drawn.id]) < conditions.samples:
                return
            grade = _graded(score(waiting.pop(drawn.id), [of_id[drawn.id]], judge))
            out.write(dataclasses.asdict(grade))
            on_graded(grade)

        draw_missing(
            "grades",
            problems,
            prompts,
            present=itertools.product(graded, range(conditions.samples)),
            conditions=conditions,
            stop_token_ids=stop_token_ids,
            sampler=sampler,
            decode=decode,
            on_drawn=keep,
        )


def _graded(scored: Sequence[Scored]) -> Grade:
    return Grade(
        id=scored[0].drawn.id,
        samples=len(scored),
        correct=sum(s.verdict.correct is True for s in scored),
        truncated=sum(s.drawn.finish_reason == "length" for s in scored),
        tokens=sum(s.drawn.tokens for s in scored),
    )


def read_grades(path: pathlib.Path) -> Iterator[Grade]:
    """Grades kept so far; a row cut short by a kill does not count.

    Raises:
      ValueError: naming a malformed row.
    """
    for where, row in read_rows(path, appended=True):
        try:
            yield Grade(**row)
        except TypeError:
            raise ValueError(f"{where}: not a grade") from None


def graded_rows(
    rows: Sequence[Mapping[str, Any]],
    grades: Mapping[str, Grade],
    *,
    levels: str,
    level_source: str,
) -> list[dict[str, Any]]:
    """The rows with solve rates, their intervals and, if asked for, levels.

    Args:
      rows: in our own schema; those without a grade keep the rate they have.
      grades: by problem id.
      levels: "percentile" replaces levels by fifths of the solve rates, 1 the most
        solved; "keep" keeps the rows' own.
      level_source: the name of the new levels' scale.
    """
    result = []
    for row in rows:
        grade = grades.get(row["id"])
        new = dict(row)
        if grade is not None:
            new["solve_rate"] = grade.solve_rate
            new["solve_interval"] = [round(edge, 6) for edge in grade.interval()]
            new["graded"] = {"samples": grade.samples, "correct": grade.correct}
        result.append(new)
    if levels == "percentile":
        of_rows = percentile_levels([row.get("solve_rate") for row in result])
        for row, level in zip(result, of_rows, strict=True):
            row["level"] = level
            row["level_source"] = level_source if level is not None else None
    return result
