"""Checks correctness and measures speed on one GPU; see docs/results/gpu.md."""

from collections.abc import Iterator
from typing import Any

PEAK = 989e12  # bfloat16 FLOP/s of an H100 SXM
Rows = Iterator[dict[str, Any]]  # the results of a part
