"""Solve rates: k completions per problem, judged, kept problem by problem."""

import dataclasses
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rl.curation.levels import percentile_levels
from rl.evaluate import Decode, Judge
from rl.statistics import wilson_interval
from rl.types import Problem
from rollout.types import Completion, Sampler, SamplingParams


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
    sampler: Sampler,
    params: SamplingParams,
    seed: int,
    chunk: int,
    decode: Decode,
    judge: Judge,
    on_graded: Callable[[Grade], None] = lambda grade: None,
) -> None:
    """Grades what `path` does not hold yet; a problem is written when it is judged.

    Problems go to the sampler in fixed chunks with a seed each, so that a restart draws
    what the first start would have drawn.

    Args:
      path: JSONL of grades, appended to.
      problems: what is asked; their ids are unique.
      prompts: token ids for each problem, template applied.
      sampler: where completions come from.
      params: how they are drawn, `params.n` per problem.
      seed: root of the chunks' seeds.
      chunk: completions asked for in one call.
      decode: token ids to text, special tokens left out.
      judge: texts and their problems to verdicts, in order.
      on_graded: told of each grade as it is written.
    """
    present = {grade.id for grade in read_grades(path)}
    size = max(1, chunk // params.n)
    with path.open("a", encoding="utf-8") as out:
        for start in range(0, len(problems), size):
            asked = range(start, min(start + size, len(problems)))
            if all(problems[i].id in present for i in asked):
                continue
            collect = _Collector(params.n)

            def keep(place: int, _: int, completion: Completion, *, asked=asked):
                problem = problems[asked[place]]
                completions = collect.add(place, completion)  # noqa: B023
                if completions is None or problem.id in present:
                    return
                present.add(problem.id)
                grade = _judged(problem, completions, decode, judge)
                out.write(json.dumps(dataclasses.asdict(grade)) + "\n")
                out.flush()
                on_graded(grade)

            sampler.sample(
                [prompts[i] for i in asked],
                params,
                seed=_chunk_seed(seed, problems[start].id),
                on_finished=keep,
            )


class _Collector:
    """Completions by problem until all n of one have come."""

    def __init__(self, n: int):
        self._n = n
        self._waiting: dict[int, list[Completion]] = {}

    def add(self, place: int, completion: Completion) -> list[Completion] | None:
        held = self._waiting.setdefault(place, [])
        held.append(completion)
        return self._waiting.pop(place) if len(held) == self._n else None


def _judged(
    problem: Problem, completions: Sequence[Completion], decode: Decode, judge: Judge
) -> Grade:
    texts = [decode(c.token_ids.tolist()) for c in completions]
    verdicts = judge(texts, [problem] * len(texts))
    return Grade(
        id=problem.id,
        samples=len(texts),
        correct=sum(verdict.correct for verdict in verdicts),
        truncated=sum(c.truncated for c in completions),
        tokens=sum(len(c.token_ids) for c in completions),
    )


def read_grades(path: pathlib.Path) -> Iterator[Grade]:
    """Grades kept so far; a row cut short by a kill is cut off the file.

    Raises:
      ValueError: naming a malformed row.
    """
    if not path.exists():
        return
    with path.open("rb+") as file:
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield Grade(**json.loads(line))
            except (TypeError, ValueError):
                raise ValueError(f"{path}:{number}: not a grade") from None


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


def _chunk_seed(seed: int, first_id: str) -> int:
    entropy = np.random.SeedSequence([seed, zlib.crc32(first_id.encode())])
    return int(entropy.generate_state(1)[0] >> 1)
