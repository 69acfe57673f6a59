"""Makes copies of benchmarks with new numbers, which a model cannot have memorized.

GSM8K's solutions annotate each step (`48/2 = <<48/2=24>>24`). The answer can therefore
be computed for other numbers, as in GSM-Symbolic (arXiv 2410.05229). A problem is used
only if the origin of each number in its solution is certain:

* Each number of the text occurs once in the text and once in the annotated steps.
* No number of the text equals a step's result, or a value that a word of the text can
  have, such as 2 for "half".
* Every other number of the steps is an earlier result or such a value of a word.
"""

import collections
import dataclasses
import operator
import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from rl.types import Problem
from rl.verifier.parse.answers import parse_answer
from rl.verifier.parse.tree import Num
from rollout.seeds import generator

_NUMBER = r"\d+(?:\.\d+)?"
_IN_TEXT = re.compile(rf"(?<![\w.,/:])({_NUMBER})(?![\w,/:]|\.\d)")
_STEP = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")
_TOKEN = re.compile(rf"({_NUMBER}|\.\d+|[-+*/()])")

# Words by the number that they can mean in a solution; a plural may have a final s. If
# a text has such a word and the same number, the solution's number is ambiguous and the
# problem is not used.
_WORDS = """
1/4 quarter; 1/2 half halves; 1 a an once single each herself himself;
2 half halves twice double doubled doubling both pair couple; 3 thrice triple tripled;
4 quarter month quadruple; 5 nickel weekday; 7 week weekly day daily; 10 dime decade;
12 dozen year yearly annual annually month foot feet inch inches noon midnight;
16 pound ounce; 20 score; 24 day daily hour; 25 quarter; 30 month monthly; 31 month;
36 yard; 50 half; 52 year yearly week; 60 minute hour hourly second;
100 % percent percentage cent dollar $ meter metre century hundred;
365 year yearly day daily; 1000 thousand kilogram kilometer liter gram;
1 first; 2 second; 3 third; 4 fourth; 5 fifth; 6 sixth; 7 seventh; 8 eighth; 9 ninth;
10 tenth; 1 one; 2 two; 3 three; 4 four; 5 five; 6 six; 7 seven; 8 eight; 9 nine;
10 ten; 11 eleven; 12 twelve; 13 thirteen; 14 fourteen; 15 fifteen; 16 sixteen;
17 seventeen; 18 eighteen; 19 nineteen; 20 twenty; 30 thirty; 40 forty; 50 fifty;
60 sixty; 70 seventy; 80 eighty; 90 ninety
"""
_MEANT = [
    (Fraction(value), frozenset(words))
    for value, *words in map(str.split, _WORDS.split(";"))
]


def perturbed_problems(problems: Sequence[Problem], date: str) -> list[Problem]:
    """Returns copies with new numbers; leaves out problems that do not allow them.

    The `meta` of a problem must have a `solution`, annotated as in GSM8K. A copy has
    the id of its original, and the text of the original as `meta["from"]`. The digits
    of `date`, such as 2026-11-22, are the random seed.
    """
    digits = re.sub(r"\D", "", date)
    if not digits:
        raise ValueError(f"date {date!r}: must have digits, such as 2026-11-22")
    streams = (generator(int(digits), i) for i in range(len(problems)))
    made = [*filter(None, map(_perturbed, problems, streams))]
    if not made:
        raise ValueError(
            "no problem can get new numbers; solutions need steps such as <<48/2=24>>"
        )
    return made


def _perturbed(problem: Problem, rng: np.random.Generator) -> Problem | None:
    read = _chain(problem)
    if not read:
        return None
    numbers, steps = read
    old = [*map(Fraction, numbers)]
    before = _values(steps, old) or []
    if not all(old):  # no other number is about as large as 0
        return None
    for _ in range(300):
        new = [_other(value, rng) for value in old]
        after = _values(steps, new)
        if after is None or any(map(operator.eq, new, old)):
            continue
        if after[-1] != before[-1] and all(map(_alike, before, after)):
            parts = _IN_TEXT.split(problem.problem)  # numbers are at odd indices
            parts[1::2] = map(_like, numbers, new)
            text, answers = "".join(parts), (_written(after[-1]),)
            meta = {"from": problem.problem}
            return dataclasses.replace(
                problem, problem=text, answers=answers, meta=meta
            )
    return None


def _chain(problem: Problem) -> tuple[list[str], list[list[str]]] | None:
    """Returns the numbers of the text, and the steps of the solution as tokens.

    In a step, `text0` is the first number of the text and `step0` the result of
    the first step. None means that the problem does not allow new numbers.
    """
    meta = problem.meta
    solution = meta.get("solution") or (meta.get("meta") or {}).get("solution") or ""
    found = _STEP.findall(solution)
    numbers = _IN_TEXT.findall(problem.problem)
    digits = len(re.findall(r"\d", problem.problem))
    if not found or not numbers or sum(map(str.isdigit, "".join(numbers))) < digits:
        return None
    names = {Fraction(n): f"text{i}" for i, n in enumerate(numbers)}
    words = set(re.findall(r"[a-z]+|[$%]", problem.problem.lower()))
    words |= {word.removesuffix("s") for word in words}
    meant = {value for value, by in _MEANT if words & by}
    if len(names) < len(numbers) or meant & names.keys():
        return None
    used: collections.Counter[str] = collections.Counter()
    steps: list[list[str]] = []
    results: list[Fraction] = []
    for expression, value in found:
        tokens = _TOKEN.findall(expression)
        if "".join(tokens) != re.sub(r"[\s$]", "", expression):
            return None
        for i, token in enumerate(tokens):
            if token[-1].isdigit():
                number = Fraction(token)
                if (number in names) == (number in meant):
                    # Ambiguous (a named number and the value of a word), or of unknown
                    # origin, such as a result without an annotated step.
                    return None
                tokens[i] = names.get(number, token)
        used.update(tokens)
        steps.append(tokens)
        result = _TOKEN.fullmatch(value.strip())
        if not result or Fraction(result[0]) in names:
            return None
        names[Fraction(result[0])] = f"step{len(results)}"
        results.append(Fraction(result[0]))
    # If a number is used twice, one use may be another quantity of the same value.
    if any(used[f"text{i}"] != 1 for i in range(len(numbers))):
        return None
    exact = _values(steps, [*map(Fraction, numbers)]) == results
    answered = [_written(results[-1])] == [*problem.answers]
    return (numbers, steps) if exact and answered else None


def _values(
    steps: Sequence[Sequence[str]], numbers: Sequence[Fraction]
) -> list[Fraction] | None:
    """Returns the result of each step; None if a step has no value."""
    known = {f"text{i}": value for i, value in enumerate(numbers)}
    results: list[Fraction] = []
    for step in steps:
        parts = (f"({known[part]})" if part in known else part for part in step)
        node = parse_answer("".join(parts)).node
        if not isinstance(node, Num):
            return None
        known[f"step{len(results)}"] = node.value
        results.append(node.value)
    return results


def _other(value: Fraction, rng: np.random.Generator) -> Fraction:
    """Samples a number from about half to twice `value`, with no more decimals."""
    unit = Fraction(1)
    while value % unit:
        unit /= 10
    # 1 would need the singular ("1 apple"), so it replaces only values below 2.
    least, most = max(unit, min(value, Fraction(2)), value / 2), 2 * value
    return unit * int(rng.integers(int(least / unit), int(most / unit) + 1))


def _alike(before: Fraction, after: Fraction) -> bool:
    """Returns whether signs are equal, and `after` is an integer if `before` is."""
    whole = before.denominator != 1 or after.denominator == 1
    return whole and (after > 0) == (before > 0) and (after < 0) == (before < 0)


def _like(number: str, value: Fraction) -> str:
    """Formats a value with the decimals of `number`."""
    return f"{float(value):.{len(number.partition('.')[2])}f}"


def _written(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.10g}"
