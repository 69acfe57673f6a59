"""Fit to learn from: something is asked, and its answer is not given away."""

import re

from tools.curation.grammar import ASKS, AUXILIARY, any_of, sentences
from tools.curation.row import Row

# A gap, or a last word that leaves the sentence open for the answer to end.
_OPEN = any_of(
    r"\\_|\\q?quad|\\underline|\\boxed|\(\s*(?:\\\s|\$\$)*\)|…|▲|\s{3,}",
    rf"(?:\b(?:{AUXILIARY}|be|equals?|of|by|to|in|as|at|from|than|with|for|then|number)"
    r"|=|:|\.{3})[\s.,$:\\)\]]*$|[a-z]$",
)
_GIVES = re.compile(r"\W*(?:let|suppose|given|assume|consider|if|for|in)\b", re.I)
_STATES = re.compile(r"\b(?:is|are|was|were|has|have|had|equals?|holds?)\b", re.I)
# "Answer: 12", "the answer is $12$"
_TOLD = re.compile(r"(?:answers?|solution|ans)(?:is|[:.=])\W*\Z", re.I)
_STATED = re.compile(r"(?:\b(?:is|are|be|equals?)|=)[\s$\\(:]*\Z")


def no_question(row: Row) -> str | None:
    """Nothing is asked.

    A sentence that states nothing names what is wanted ("The area of the square"), or
    orders it ("Name the largest"), unless it only gives ("Let", "Suppose").
    """
    if ASKS.search(row.problem) or _OPEN.search(row.problem):
        return None
    for sentence in sentences(row.problem):
        if not _STATES.search(sentence) and not _GIVES.match(sentence):
            return None
    return "ends: " + row.problem[-40:]


def answer_leak(row: Row) -> str | None:
    """The problem states its own answer."""
    last = sentences(row.problem)[-1].rstrip(".$\\) ")
    dense = "".join(row.problem.split())
    for answer in row.answers:
        if "boxed{" + answer + "}" in row.problem:
            return f"boxed {answer}"[:60]
        for at in re.finditer(re.escape("".join(answer.split())), dense):
            if _TOLD.search(dense, max(0, at.start() - 30), at.start()):
                return dense[max(0, at.start() - 30) : at.end()][:60]
        before = last.removesuffix(answer)
        if before != last and _STATED.search(before) and not ASKS.search(last):
            return last[-60:]
    return None


CHECKS = {
    "no_question": no_question,
    "answer_leak": answer_leak,
}
