"""Rewards as users write them, the wrong ones too."""

import asyncio
import os
import subprocess
import time

import numpy as np


def simple(text, problem):
    """1.0 for the answer, 0.1 for a box."""
    return 1.0 if problem.answers[0] in text else 0.1 * ("boxed" in text)


def batch(completions, problems):
    assert len({problem.id for problem in problems}) == 1
    most, scores = max(map(len, completions)), []
    for c, problem in zip(completions, problems, strict=True):
        components = {"length": len(c), "column": problem.meta["column"]}
        score = {"reward": np.float32(len(c) / most), "components": components}
        scores.append(score | {"correct": problem.answers[0] in c})
    return scores


_together = 0


async def waits(text, problem):
    """Its reward is how many calls were under way at once."""
    global _together
    _together += 1
    await asyncio.sleep(0.05)
    most = _together
    await asyncio.sleep(0.05)
    _together -= 1
    return {"reward": most, "correct": False}


async def waits_for_all(completions, problems):
    await asyncio.sleep(0)
    return [1.0] * len(completions)


class Judge:
    def __call__(self, text, problem):
        return {"reward": None} if "?" in text else 1.0


judge = Judge()


def own_part(text, problem):
    return {"reward": 0.5, "components": {"length": 1.0}}


def fails(text, problem):
    return _column(problem) if text.endswith("bad") else 1.0


def _column(problem):
    return problem.meta["no such\ncolumn"]


def fails_on_empty(text, problem):
    return float(text[-1] == "}")


def nan(text, problem):
    return float("nan")


def infinite_part(text, problem):
    return {"reward": 1.0, "components": {"x": float("inf")}}


def short(completions, problems):
    return [1.0]


def of_trl(prompts, completions, **kwargs):
    return [1.0] * len(completions)


def no_list(completions, problems):
    return 1.0


def word(text, problem):
    return "1.0"


def nothing(text, problem):
    pass


def vast(text, problem):
    return 1e30


class Stubborn:
    def __float__(self):
        raise RuntimeError("has several elements")

    __repr__ = __float__


def stubborn(text, problem):
    return Stubborn()


def several(text, problem):
    return [1.0, 2.0]


def misspelt(text, problem):
    return {"reward": 1.0, "componets": {}}


def hangs(text, problem):
    if text.endswith("hang"):
        time.sleep(600)
    return 1.0


def dies(text, problem):
    os._exit(3)


def starts(text, problem):
    """Hangs, and so does what it has started, whose id is in the file."""
    child = subprocess.Popen(["sleep", "600"])
    with open(text, "w") as file:
        file.write(str(child.pid))
    child.wait()


no_function = 3


def prints(completion, problem):
    print("caf\xe9", completion, flush=True)
    return 1.0
