"""Select completions of a step that are worth reading."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from configs.schema import Range
from rl.groups.stats import RolloutStats
from rl.types import Group
from rl.verifier import extract_answer

_END = 100  # characters at the end of a completion that may be the gold


def example_rows(
    stats: RolloutStats,
    decode: Callable[[Sequence[int]], str],
    decode_prompt: Callable[[Sequence[int]], str],
    *,
    samples: Annotated[int, Range(0, 8)],
) -> list[dict[str, Any]]:
    """Return completions of a step worth reading, for samples.jsonl.

    They are the best, the worst, a suspect verdict, a truncated one and a repetitive
    one, as far as there are such; then the first of each group. Each comes with its
    prompt as the model saw it.
    """
    drawn = []
    for group, repeated in zip(stats.examples, stats.repeated, strict=False):
        for index, of in enumerate(repeated):
            drawn.append((group, index, bool(of)))
    if not drawn or not samples:
        return []
    of_reward = [float(group.rewards[index]) for group, index, _ in drawn]
    rows = {}

    def row(at: int) -> dict[str, Any]:
        if at not in rows:
            rows[at] = _example(*drawn[at], decode, decode_prompt)
        return rows[at]

    def first(holds: Callable[[int], bool]) -> list[int]:
        return [next((i for i in range(len(drawn)) if holds(i)), -1)]

    picked = {
        "best": [int(np.argmax(of_reward))],
        "worst": [int(np.argmin(of_reward))],
        "suspect": first(lambda i: bool(row(i)["suspect"])),
        "truncated": first(lambda i: drawn[i][0].completions[drawn[i][1]].truncated),
        "repeated": first(lambda i: drawn[i][2]),
        "": [i for i in range(len(drawn)) if drawn[i][1] == 0],
    }
    shown: dict[int, list[str]] = {}
    for kind, found in picked.items():
        for at in found:
            if at >= 0 and (at in shown or len(shown) < samples):
                shown.setdefault(at, []).extend([kind] if kind else [])
    return [row(at) | {"shown_as": kinds} for at, kinds in shown.items()]


def _example(
    group: Group,
    index: int,
    repeated: bool,
    decode: Callable[[Sequence[int]], str],
    decode_prompt: Callable[[Sequence[int]], str],
) -> dict[str, Any]:
    completion = group.completions[index]
    row = {
        "id": group.problem.id,
        "problem": group.problem.problem,
        "prompt": decode_prompt(group.prompt_ids.tolist()),
        "completion": decode(completion.token_ids.tolist()),
        "gold": group.problem.answers[0],
        "correct": bool(group.correct[index]),
        "reward": float(group.rewards[index]),
        **_components(group, index),
        "finish_reason": completion.finish_reason,
        "tokens": len(completion.token_ids),
        "repeated": repeated,
    }
    if group.rules:
        row["rule"] = group.rules[index]
    return row | {"suspect": suspicion(row)}


def suspicion(row: Mapping[str, Any]) -> str:
    """Return why a verdict is worth a second look; empty if it is not.

    Args:
      row: of samples.jsonl.
    """
    if row["correct"]:
        if row["finish_reason"] == "length":
            return "right, though it was cut off"
        return "right, though it is repetitive" if row["repeated"] else ""
    if row.get("rule") == "open":
        return "wrong, since nothing was shown within the budget"
    gold = rf"(?<![\w.]){re.escape(row['gold'])}(?!\w)"
    answer = extract_answer(row["completion"])
    if answer is not None:
        holds = re.search(gold, answer)
        return "wrong, though the answer holds the gold" if holds else ""
    end = row["completion"][-_END:].rstrip(" .$\n")
    ends = re.search(rf"{gold}\Z", end)
    return "no answer found, though it ends on the gold" if ends else ""


def _components(group: Group, index: int) -> dict[str, Any]:
    found = {
        k: float(v[index])
        for k, v in group.components.items()
        if not np.isnan(v[index])
    }
    return {"components": found} if found else {}
