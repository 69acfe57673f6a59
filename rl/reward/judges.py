"""Defines the reward functions of the ablations in `configs/ablations.py`."""

import functools
import hashlib
import logging
import math

from rl.problems.types import Problem
from rl.reward.verifier import verifier_reward
from rl.verifier import extract_answer, judge

# Judges in the current process, without the workers of `VerifierPool`.
_verify = verifier_reward(lambda items: [judge(*item) for item in items])


def exact_match(completion: str, problem: Problem) -> float:
    """Returns 1.0 if the boxed answer equals a gold answer as text, else -1.0."""
    return 1.0 if extract_answer(completion) in problem.answers else -1.0


def boxed(completion: str, problem: Problem) -> float:
    """Returns 1.0 if the completion has a boxed answer, correct or not, else -1.0."""
    return 1.0 if extract_answer(completion) else -1.0


def math_verify(completion: str, problem: Problem) -> float:
    """Returns 1.0 if the package math-verify accepts the answer, else -1.0."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    answer = parse(completion)
    # Without math delimiters, Math-Verify would look for numbers only.
    golds = (parse(f"${gold}$") for gold in problem.answers)
    return 1.0 if any(verify(gold, answer) for gold in golds) else -1.0


def flipped(
    completion: str, problem: Problem, *, share: float, systematic: bool = False
) -> dict:
    """Returns the verifier's reward, with its sign inverted for some completions.

    `share` is the expected share of completions with an inverted sign. A hash of the
    problem's id and the completion selects them. With `systematic`, the hash is of the
    id alone, so the sign is inverted for all completions of a problem or for none. This
    imitates wrong gold answers.
    """
    ((score,),) = _verify([[completion]], [problem])
    if math.isnan(score.reward):
        return {"reward": None}
    text = f"{problem.id}\0{'' if systematic else completion}".encode()
    drawn = int.from_bytes(hashlib.sha256(text).digest()[:8]) / 2**64
    return {"reward": -score.reward if drawn < share else score.reward}


flipped_5 = functools.partial(flipped, share=0.05)
flipped_10 = functools.partial(flipped, share=0.10)
flipped_5_problems = functools.partial(flipped, share=0.05, systematic=True)
flipped_10_problems = functools.partial(flipped, share=0.10, systematic=True)
