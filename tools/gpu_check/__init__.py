"""Checks correctness and measures speed on one GPU; see docs/results/gpu.md."""

from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]
Rows = Iterator[Row]  # the results of a part
