"""Judges to compare the verifier with, each a reward for `reward.function`.

`configs/ablations/verifier.py` asks what a run learns from them.
"""

import functools
import hashlib
import logging
import math

from rl.problems.types import Problem
from rl.reward.verifier import verifier_reward
from rl.verifier import extract_answer, judge

# Judges in this process, where `VerifierPool.judge` has workers.
_verify = verifier_reward(lambda items: [judge(*item) for item in items])


def exact_match(completion: str, problem: Problem) -> float:
    """Return whether the box has an accepted answer, letter by letter."""
    return 1.0 if extract_answer(completion) in problem.answers else -1.0


def boxed(completion: str, problem: Problem) -> float:
    """Return whether there is an answer in a box, right or wrong."""
    return 1.0 if extract_answer(completion) else -1.0


def math_verify(completion: str, problem: Problem) -> float:
    """Return the verdict of Math-Verify, of the package `math-verify[antlr4_13_2]`."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    answer = parse(completion)
    # A gold is math; without delimiters Math-Verify would look for numbers only.
    golds = (parse(f"${gold}$") for gold in problem.answers)
    return 1.0 if any(verify(gold, answer) for gold in golds) else -1.0


def flipped(
    completion: str, problem: Problem, *, share: float, systematic: bool = False
) -> dict:
    """Return the verifier's verdict, inverted for a share of all completions.

    A hash of problem and completion decides, so that the same completion always gets
    the same verdict; if `systematic`, a hash of the problem decides for all of its
    completions, as where a gold is wrong.
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
