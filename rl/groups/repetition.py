"""Completions that repeat themselves, or each other."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

_WINDOW = 8  # tokens; prose and algebra rarely repeat runs of this length
_TAIL = 512  # tokens; a looping completion rarely recovers
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def is_repetitive(token_ids: Int[np.ndarray, " n"]) -> bool:
    """Return whether most runs of 8 of the last 512 tokens came before within them.

    Compares 64-bit hashes of the runs; 2,048 completions take 0.2 s.
    """
    token_ids = token_ids[-_TAIL:]
    count = len(token_ids) - _WINDOW + 1
    if count < _WINDOW:
        return False
    hashes = np.zeros(count, np.uint64)
    for i in range(_WINDOW):
        hashes = hashes * _FACTOR + token_ids[i : i + count].astype(np.uint64) + 1
    return len(np.unique(hashes)) < count / 2


def duplicated(texts: Sequence[Int[np.ndarray, " _"]]) -> Bool[np.ndarray, " G"]:
    """Return which completions of a group are equal to another one of it."""
    keys = [text.tobytes() for text in texts]
    return np.array([keys.count(key) > 1 for key in keys], bool)
