"""Defines the model sizes and makes the batches that the parts of the check share."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from rl.types import Batch
from tools.bench.work import Shape, make_batches, make_tokens

Rows = Iterator[dict[str, Any]]  # the results of a part
PEAK = 989e12  # bfloat16 FLOP/s of an H100 SXM
_NAMES = "layers hidden heads kv_heads mlp vocab".split()
SIZES = {
    name: Shape(**dict(zip(_NAMES, sizes, strict=True)), lengths="lognormal")
    for name, sizes in {
        "0.5B": (24, 896, 14, 2, 4864, 151936),
        "1.5B": (28, 1536, 12, 2, 8960, 151936),
        "equal": (4, 256, 4, 2, 512, 4096),
        "tiny": (2, 64, 4, 2, 128, 1024),
    }.items()
}


def make_batch(size: Shape, rows: int, length: int) -> tuple[Batch, np.ndarray, float]:
    """Returns a micro-batch of `rows` rows of `length` tokens, with little padding.

    Returns:
      The batch; the log-normal lengths of its segments; and the FLOPs of its gradient,
      without recomputation.
    """
    prompt = 150 if length >= 1024 else 8
    groups = max(2, rows * length // 2048)
    work = dataclasses.replace(
        size, prompt=prompt, completion=length - prompt, groups=groups, group_size=16
    )
    batch, *_ = make_batches(
        work, make_tokens(work), row_length=length, micro_tokens=rows * length
    )
    ids = np.asarray(batch.segment_ids)
    lengths = np.concatenate(
        [np.unique(row[row > 0], return_counts=True)[1] for row in ids]
    )
    return batch, lengths, 3 * work.forward_flops(lengths - prompt)


def error(found: Any, exact: Any) -> float:
    """Returns the relative error in the Euclidean norm."""
    a, b = (np.asarray(x, np.float64) for x in (found, exact))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))
