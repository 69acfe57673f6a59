"""Measures whether a model has memorized a benchmark.

If a model completes the text of a problem word for word, the problem was probably in
its training data. Its score is then weak evidence of reasoning. Qwen2.5-Math-7B
completes 54.6% of MATH-500 from the first 60% of each text, and 0% of a set that was
made later (arXiv 2507.10532).
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rl.evaluate import SampledCompletion
from rl.statistics import wilson_interval
from rl.types import Problem
from tools.evaluation.pretrained import Pretrained
from tools.evaluation.run import PAPER, Task, make_task

SHARES = (40, 60, 80)  # percent of a problem's words in the prompt
_LONGEST = 512  # sampled tokens; a longer rest counts as not completed


def given_and_rest(text: str, percent: int) -> tuple[str, str]:
    """Splits a text after about `percent` of its words; a single word has no rest."""
    words = list(re.finditer(r"\S+", text))
    count = min(max(1, round(len(words) * percent / 100)), max(1, len(words) - 1))
    end = words[count - 1].end()
    return text[:end], text[end:]


def tasks(
    folder: pathlib.Path,
    name: str,
    problems: Sequence[Problem],
    model: Pretrained,
    context: int,
) -> Iterator[Task]:
    """Yields a greedy task NAME@PERCENT for each percentage in `SHARES`.

    A prompt is the beginning of a problem's text. Texts of one word are left out.
    """
    for percent in SHARES:
        asked = [
            Problem(id=problem.id, problem=given, answers=(rest,))
            for problem in problems
            for given, rest in [given_and_rest(problem.problem, percent)]
            if rest.strip()
        ]
        if asked:
            lengths = [
                len(model.tokenizer.encode(p.answers[0], add_special_tokens=False))
                for p in asked
            ]
            longest = min(max(lengths) + 8, _LONGEST)
            how = dataclasses.replace(PAPER, max_tokens=longest, context=context)
            yield make_task(folder, f"{name}@{percent}", asked, model, how)


def completes(completion: str, rest: str) -> bool:
    """Returns whether a completion begins with `rest`; white space is ignored."""
    return "".join(completion.split()).startswith("".join(rest.split()))


def memory(
    problems: Sequence[Problem], drawn: Mapping[int, Sequence[SampledCompletion]]
) -> dict[str, Any]:
    """Returns how often a model completes the text of a problem, by percentage.

    The percentage is the share of the text that is in the prompt. `drawn` has the
    completions by percentage. A result has the share of problems `completed`, its 95%
    `interval` and the number of `problems`.
    """
    texts = {p.id: p.problem for p in problems}
    found = {}
    for percent, completions in sorted(drawn.items()):
        right = [
            completes(d.completion, given_and_rest(texts[d.id], percent)[1])
            for d in completions
        ]
        if right:
            found[str(percent)] = {
                "completed": float(np.mean(right)),
                "interval": wilson_interval(sum(right), len(right)),
                "problems": len(right),
            }
    return found
