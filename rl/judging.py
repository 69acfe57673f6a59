"""What an evaluation asks of the verifier beyond one completion and its golds."""

import dataclasses
import re
from collections.abc import Sequence
from fractions import Fraction

from rl.evaluate import Judge, Scored, by_problem
from rl.types import Problem
from rl.verifier import Verdict, VerifierPool, canonical_key

_DECIMAL = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?")


def make_judge(pool: VerifierPool) -> Judge:
    """A judge that also honours what a problem's `meta` says of its answer.

    `unit` is the gold's unit: the verifier forgives a missing unit, so that against a
    bare gold any unit would pass. `error` is an absolute tolerance.
    """

    def judge(texts: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        verdicts = pool.judge(
            [(text, _golds(p)) for text, p in zip(texts, problems, strict=True)]
        )
        return [
            dataclasses.replace(verdict, correct=True, status="ok")
            if not verdict.correct and _within_tolerance(verdict.answer, problem)
            else verdict
            for verdict, problem in zip(verdicts, problems, strict=True)
        ]

    return judge


def answer_classes(
    scored: Sequence[Scored], pool: VerifierPool
) -> dict[str, list[int | None]]:
    """Sorts the answers to each problem into classes of equivalent ones.

    Equal canonical keys are one class without asking; then, round by round, the first
    answer without a class is compared with all others that have none, for all problems
    in one call of the pool.

    Returns:
      For each problem id, per completion in order, its class or None without answer.
    """
    groups = by_problem(scored)
    keys = {
        id: [None if s.answer is None else canonical_key(s.answer) for s in group]
        for id, group in groups.items()
    }
    # One text per key, in order of first appearance.
    texts: dict[str, dict[str, str]] = {id: {} for id in groups}
    for id, group in groups.items():
        for key, s in zip(keys[id], group, strict=True):
            if key is not None:
                texts[id].setdefault(key, s.answer)
    class_of: dict[str, dict[str, int]] = {id: {} for id in groups}
    number = 0
    while open_ids := [id for id in groups if len(class_of[id]) < len(texts[id])]:
        asked = []
        for id in open_ids:
            unsorted = [key for key in texts[id] if key not in class_of[id]]
            class_of[id][unsorted[0]] = number
            head = texts[id][unsorted[0]]
            asked += [(id, key, texts[id][key], head) for key in unsorted[1:]]
        verdicts = pool.judge(
            [(f"\\boxed{{{text}}}", (head,)) for _, _, text, head in asked]
        )
        for (id, key, _, _), verdict in zip(asked, verdicts, strict=True):
            if verdict.correct:
                class_of[id][key] = number
        number += 1
    return {
        id: [None if key is None else class_of[id][key] for key in of_problem]
        for id, of_problem in keys.items()
    }


def _golds(problem: Problem) -> tuple[str, ...]:
    """The accepted answers, in their unit where that is a word."""
    unit = (problem.meta.get("unit") or "").strip("$")
    if not unit[:1].isalpha():
        return problem.answers
    written = f" {unit}" if "^" in unit else f"\\text{{ {unit}}}"
    return tuple(answer.strip("$") + written for answer in problem.answers)


def _within_tolerance(answer: str | None, problem: Problem) -> bool:
    """Whether a decimal answer is as near to a gold as the problem allows."""
    error = problem.meta.get("error")
    if answer is None or not error:
        return False
    value = _decimal(answer)
    golds = [_decimal(gold) for gold in problem.answers]
    return value is not None and any(
        gold is not None and abs(value - gold) <= Fraction(str(error)) for gold in golds
    )


def _decimal(text: str) -> Fraction | None:
    bare = re.sub(r"^\w\s*=|\\?%|[$\s]|\\[,;!]", "", text)
    return Fraction(bare) if _DECIMAL.fullmatch(bare) else None
