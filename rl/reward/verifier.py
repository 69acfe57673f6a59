"""Defines the score of a completion, and provides the verifier as a reward."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from rl.problems.types import Problem
from rl.verifier import Verdict

_DECIMAL = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Holds the result of judging one completion."""

    reward: float  # finite; NaN without a verdict: not used for training
    verdict: Verdict  # correctness, and the rule that decided it
    # Parts of the reward by name, for metrics and sample files.
    components: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, verdict: Verdict) -> "Score":
        worth = {True: 1.0, False: -1.0, None: math.nan}
        return cls(reward=worth[verdict.correct], verdict=verdict)


Reward = Callable[[Sequence[Sequence[str]], Sequence[Problem]], list[list[Score]]]
"""Function from groups of texts and the problem of each group to a score per text."""

# A completion, the gold answers, and the text of the problem.
Item = tuple[str, tuple[str, ...], str]


def verifier_reward(judge_all: Callable[[Sequence[Item]], Sequence[Verdict]]) -> Reward:
    """Returns the verifier's reward function: 1 if correct, -1 if wrong, else NaN.

    The reward uses two entries of `Problem.meta`. `unit` is appended to the golds if it
    begins with a letter, because a gold without a unit may match any unit. If `unit` is
    a percent sign, golds without the sign are also accepted with the sign. `error` is
    the absolute tolerance of decimal answers.

    `judge_all` returns the verdicts of items, like `VerifierPool.judge`.
    """

    def score_verdicts(
        groups: Sequence[Sequence[str]], problems: Sequence[Problem]
    ) -> list[list[Score]]:
        pairs = list(zip(groups, problems, strict=True))
        items = [(text, _golds(p), p.problem) for texts, p in pairs for text in texts]
        verdicts = iter(judge_all(items))
        return [[_score(next(verdicts), p) for _ in texts] for texts, p in pairs]

    return score_verdicts


def _score(verdict: Verdict, problem: Problem) -> Score:
    if not verdict.correct and _within_tolerance(verdict.answer, problem):
        verdict = Verdict(True, verdict.answer, "tolerance")
    return Score.of(verdict)


def _golds(problem: Problem) -> tuple[str, ...]:
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
    error = problem.meta.get("error")
    value = _decimal(answer) if answer and error else None
    if value is None:
        return False
    try:
        tolerance = Fraction(str(error))
    except (ValueError, ZeroDivisionError):  # a column "error" with another meaning
        return False
    golds = map(_decimal, problem.answers)
    return any(gold is not None and abs(value - gold) <= tolerance for gold in golds)


def _decimal(text: str) -> Fraction | None:
    bare = re.sub(r"^\w\s*=|\\?%|[$\s]|\\[,;!]", "", text)
    return Fraction(bare) if _DECIMAL.fullmatch(bare) else None
