"""Packs prompts into rows for prefill.

A shared prefix of all prompts, such as few-shot examples, is one segment at the start
of each row. Every prompt of the row attends to this prefix.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from models.cache import Spans

Prompts = Sequence[Sequence[int]]


class Rows(NamedTuple):
    """Holds Q packed rows of T positions, the inputs of `models.decoder.Decoder`."""

    ids: Int[np.ndarray, "Q T"]
    positions: Int[np.ndarray, "Q T"]
    segments: Int[np.ndarray, "Q T"]
    prefixes: Int[np.ndarray, "Q T"]


def common_length(prompts: Prompts) -> int:
    """Returns the length of the common prefix; it excludes each prompt's last token."""
    shortest = min(len(prompt) for prompt in prompts)
    first, last = (list(f(map(tuple, prompts))) for f in (min, max))
    differ = (i for i in range(shortest - 1) if first[i] != last[i])
    return next(differ, shortest - 1)


def pack_prompts(
    prompts: Prompts, *, shared: int, rows: int, length: int
) -> tuple[Rows, Spans]:
    """Packs prompts, without their last tokens, in order until `rows` rows are full.

    Returns the rows, and the spans of the prompts that are in them. All prompts begin
    with the same `shared` tokens, and have 1 to `length` + 1 tokens.
    """
    ids, positions, segments, prefixes = np.zeros((4, rows, length), np.int32)
    spans: list[tuple[int, int, int]] = []
    row, end, segment = -1, length + 1, 0
    for prompt in prompts:
        rest = len(prompt) - 1 - shared
        if end + rest > length:
            row, end, segment = row + 1, shared, 1
            if row == rows:
                break
            ids[row, :end] = prompt[:shared]
            positions[row, :end] = np.arange(shared)
            segments[row, :end] = 1
        here = slice(end, end + rest)
        segment += 1
        ids[row, here] = prompt[shared:-1]
        positions[row, here] = np.arange(shared, shared + rest)
        segments[row, here] = segment
        prefixes[row, here] = 1 if shared else 0
        spans.append((row, end, shared + rest))
        end += rest
    host: Any = *np.array(spans, np.int32).reshape(-1, 3).T, np.int32(shared)
    return Rows(ids, positions, segments, prefixes), Spans(*host)
