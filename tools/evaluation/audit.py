"""Does a model know a benchmark by heart? Part of each problem, and what comes after.

A model that writes the rest of a problem word for word has read it before; its score
there says little about reasoning. Qwen2.5-Math-7B completes 54.6% of MATH-500 from the
first 60% of each text, and 0% of a set made later (arXiv 2507.10532).
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl.evaluate import SampledCompletion
from rl.problems.tokenizer import PreTrainedTokenizerBase
from rl.statistics import wilson_interval
from rl.types import Problem
from tools.evaluation.run import PAPER, Conditions

SHARES = (40, 60, 80)  # percent of a problem's words that are given
_LONGEST = 512  # tokens of a rest; a longer one counts as not completed


def given_and_rest(text: str, percent: int) -> tuple[str, str]:
    """A text cut between two words; both parts have one at least, if the text has two.

    Returns:
      What a model is given, and what it would have to write.
    """
    words = list(re.finditer(r"\S+", text))
    kept = min(max(1, round(len(words) * percent / 100)), max(1, len(words) - 1))
    end = words[kept - 1].end()
    return text[:end], text[end:]


def partial_problems(
    problems: Sequence[Problem], percent: int
) -> list[tuple[Problem, str]]:
    """Each problem's given part as a problem, under its own id, and the rest."""
    cut = [(p, *given_and_rest(p.problem, percent)) for p in problems]
    return [
        (Problem(id=p.id, problem=given, answers=(rest,)), rest)
        for p, given, rest in cut
        if rest.strip()
    ]


def conditions(
    rests: Sequence[str], tokenizer: PreTrainedTokenizerBase, context: int
) -> Conditions:
    """Greedy, without a template, as long as the longest rest."""
    longest = max(len(tokenizer.encode(r, add_special_tokens=False)) for r in rests)
    return dataclasses.replace(
        PAPER, max_tokens=min(longest + 8, _LONGEST), context=context
    )


def completes(completion: str, rest: str) -> bool:
    """Whether a completion begins with the rest, however spaced."""
    return "".join(completion.split()).startswith("".join(rest.split()))


def memory(
    problems: Sequence[Problem], drawn: Mapping[int, Sequence[SampledCompletion]]
) -> dict[str, Any]:
    """Share of problems completed word for word, by percent given, with intervals.

    Args:
      problems: of the benchmark.
      drawn: by percent, a completion of each given part.
    """
    found = {}
    for percent, completions in sorted(drawn.items()):
        if not completions:
            continue
        rest_of = {p.id: rest for p, rest in partial_problems(problems, percent)}
        right = [completes(d.completion, rest_of[d.id]) for d in completions]
        found[str(percent)] = {
            "completed": float(np.mean(right)),
            "interval": wilson_interval(sum(right), len(right)),
            "problems": len(right),
        }
    return found
