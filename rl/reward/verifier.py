"""The rule-based verifier as a reward."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from rl.problems.types import Problem
from rl.reward.score import Reward, Score
from rl.verifier import Verdict

_DECIMAL = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?")


# A completion, its golds, and the problem's text.
Item = tuple[str, tuple[str, ...], str]


def verifier_reward(
    judge_all: Callable[[Sequence[Item]], Sequence[Verdict]],
) -> Reward:
    """Return the reward by the verifier, which also reads a problem's `meta`.

    `unit` is the gold's unit: the verifier forgives a missing unit, so that against a
    bare gold any unit would pass. `error` is an absolute tolerance.
    """

    def judge(
        groups: Sequence[Sequence[str]], problems: Sequence[Problem]
    ) -> list[list[Score]]:
        pairs = list(zip(groups, problems, strict=True))
        asked = [(text, _golds(p), p.problem) for texts, p in pairs for text in texts]
        verdicts = iter(judge_all(asked))
        return [[_score(next(verdicts), p) for _ in texts] for texts, p in pairs]

    return judge


def _score(verdict: Verdict, problem: Problem) -> Score:
    if not verdict.correct and _within_tolerance(verdict.answer, problem):
        verdict = dataclasses.replace(
            verdict, correct=True, rule="tolerance", reason=""
        )
    return Score.of(verdict)


def _golds(problem: Problem) -> tuple[str, ...]:
    """Return the accepted answers, with a unit that is a word; in percent, or bare."""
    unit = problem.meta.get("unit")
    unit = unit.strip("$") if isinstance(unit, str) else ""
    if unit in ("%", r"\%"):
        bare = (answer.strip("$") for answer in problem.answers if "%" not in answer)
        return (*problem.answers, *(answer + r"\%" for answer in bare))
    if not unit[:1].isalpha():
        return problem.answers
    written = f" {unit}" if "^" in unit else f"\\text{{ {unit}}}"
    return tuple(answer.strip("$") + written for answer in problem.answers)


def _within_tolerance(answer: str | None, problem: Problem) -> bool:
    """Return whether a decimal answer is within the problem's tolerance of a gold."""
    error = problem.meta.get("error")
    if answer is None or not error:
        return False
    tolerance, value = _tolerance(error), _decimal(answer)
    golds = [_decimal(gold) for gold in problem.answers]
    return (
        tolerance is not None
        and value is not None
        and any(gold is not None and abs(value - gold) <= tolerance for gold in golds)
    )


def _tolerance(error: object) -> Fraction | None:
    try:
        return Fraction(str(error))
    except ValueError:  # a column of this name that means something else
        return None


def _decimal(text: str) -> Fraction | None:
    bare = re.sub(r"^\w\s*=|\\?%|[$\s]|\\[,;!]", "", text)
    return Fraction(bare) if _DECIMAL.fullmatch(bare) else None
