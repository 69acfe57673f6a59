"""Selects the completions of a step for samples.jsonl."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rl.groups.stats import RolloutStats
from rl.verifier import extract_answer
from rl.verifier.parse.extract import behind

_END = 100  # characters at the end of a completion that are searched for the gold


def example_rows(
    stats: RolloutStats,
    decode: Callable[[Sequence[int]], str],
    decode_prompt: Callable[[Sequence[int]], str],
    *,
    samples: int,
    after: str,
) -> list[dict[str, Any]]:
    """Returns at most `samples` completions worth reading, as rows of samples.jsonl.

    Selects from `stats.examples`, in this order: the completions with the best and the
    worst reward; the first suspect one (see `suspicion`), the first truncated and the
    first repetitive one; the first completion of each group. `after` is
    `config.reward.after`.
    """
    rows: list[dict[str, Any]] = []
    firsts: list[int] = []
    repeated = stats.columns.get("sampling/repeated", ())
    for group, of_group in zip(stats.examples, repeated, strict=False):
        firsts.append(len(rows))
        prompt = decode_prompt(group.prompt_ids.tolist())
        for i, completion in enumerate(group.completions):
            row = {
                "id": group.problem.id,
                "problem": group.problem.problem,
                "prompt": prompt,
                "completion": decode(completion.token_ids.tolist()),
                "gold": group.problem.answers[0],
                "correct": bool(group.correct[i]),
                "reward": float(group.rewards[i]),
                "finish_reason": completion.finish_reason,
                "tokens": len(completion.token_ids),
                "repeated": bool(of_group[i]),
            }
            parts = {name: float(x[i]) for name, x in group.components.items()}
            if known := {k: v for k, v in parts.items() if not math.isnan(v)}:
                row["components"] = known
            if group.rules:
                row["rule"] = group.rules[i]
            rows.append(row | {"suspect": suspicion(row, after=after)})
    if not rows or not samples:
        return []

    def first(holds: Callable[[dict[str, Any]], bool]) -> list[int]:
        return [i for i, row in enumerate(rows) if holds(row)][:1]

    rewards = [row["reward"] for row in rows]
    picked = {
        "best": [int(np.argmax(rewards))],
        "worst": [int(np.argmin(rewards))],
        "suspect": first(lambda row: bool(row["suspect"])),
        "truncated": first(lambda row: row["finish_reason"] == "length"),
        "repeated": first(lambda row: row["repeated"]),
        "": firsts,
    }
    shown: dict[int, list[str]] = {}
    for kind, found in picked.items():
        for at in found:
            if at in shown or len(shown) < samples:
                shown.setdefault(at, []).extend([kind] if kind else [])
    return [rows[at] | {"shown_as": kinds} for at, kinds in shown.items()]


def suspicion(row: Mapping[str, Any], *, after: str = "") -> str:
    """Returns why the verdict of a row may be wrong, or an empty string."""
    if row["correct"]:
        if row["finish_reason"] == "length":
            return "right, though it was cut off"
        return "right, though it is repetitive" if row["repeated"] else ""
    if row.get("rule") == "open":
        return "wrong, since nothing was proved within the budget"
    gold = rf"(?<![\w.]){re.escape(row['gold'])}(?!\w)"
    text = behind(row["completion"], after or None)
    answer = extract_answer(text)
    if answer is not None:
        holds = re.search(gold, answer)
        return "wrong, though the answer contains the gold" if holds else ""
    ends = re.search(rf"{gold}\Z", text[-_END:].rstrip(" .$\n"))
    return "no answer found, though it ends with the gold" if ends else ""
