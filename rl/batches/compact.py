"""Arrays whose entries stand still or count, in little room.

Of a packed batch only token ids and log-probabilities change from entry to entry.
Masks, advantages and weights stand still along a completion, and positions count.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

KINDS = ("bits", "starts", "steps")


def encode(array: np.ndarray) -> dict[str, np.ndarray]:
    """An array's bits: as they are, or as steps from each to the next, run by run."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(f"u{flat.itemsize}")
    steps = np.diff(bits, prepend=bits.dtype.type(0))
    starts = np.flatnonzero(np.diff(steps, prepend=steps[:1] ^ 1))
    if len(starts) < flat.size // 8 and flat.size < 2**32:
        return {"starts": starts.astype(np.uint32), "steps": steps[starts]}
    return {"bits": bits}


def decode(
    parts: Mapping[str, np.ndarray], shape: Sequence[int], dtype: Any
) -> np.ndarray:
    """The array of which `encode` made these parts.

    Raises:
      ValueError: they are of none of this shape.
    """
    size = int(np.prod(shape))
    bits = parts.get("bits")
    if bits is None:
        starts = parts["starts"].astype(np.int64)
        lengths = np.diff(starts, append=size)
        if not len(starts) or starts[0] or lengths.min() < 1:
            raise ValueError(f"runs that do not fill {size} entries")
        steps = parts["steps"]
        bits = np.cumsum(np.repeat(steps, lengths), dtype=steps.dtype)
    return bits.view(np.dtype(dtype)).reshape(shape)
