"""What one run that has ended comes to: a number for each figure."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rl import files
from tools.ablation.curves import SPENT, fit_sigmoid, read_curve

END = 0.1  # share of the steps that count as the end of a run


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """How a figure is told.

    Attributes:
      title: of its column.
      scale: it is multiplied by.
      form: of the product, as of `format`.
    """

    title: str
    scale: float = 1.0
    form: str = ".3f"

    def tell(self, value: float, sign: str = "") -> str:
        return f"{value * self.scale:{sign}{self.form}}"


FIGURES: Mapping[str, Figure] = {
    "accuracy": Figure("accuracy, %", 100, ".1f"),
    "greedy_accuracy": Figure("greedy, %", 100, ".1f"),
    "entropy": Figure("entropy at the end, nats", 1, ".3f"),
    "length": Figure("length at the end, tokens", 1, ".1f"),
    "tokens": Figure("tokens drawn, millions", 1e-6, ".2f"),
    "minutes": Figure("minutes", 1 / 60, ".1f"),
    "A": Figure("A, %", 100, ".1f"),
    "A_low": Figure("A from, %", 100, ".1f"),
    "A_high": Figure("A to, %", 100, ".1f"),
    "B": Figure("B", 1, ".2f"),
    "C_mid": Figure("C_mid", 1, ".4g"),
}


def read_figures(
    workdir: pathlib.Path, *, curve: str, against: str
) -> dict[str, float]:
    """The figures of a run that has ended; one that it does not have is absent.

    Args:
      workdir: of the run.
      curve: the metric to which the sigmoid of `tools.ablation.curves` is fitted.
      against: what it is drawn over, one of `SPENT`.

    Raises:
      ValueError: a file of the workdir is damaged.
    """
    summary = json.loads((workdir / "summary.json").read_text(encoding="utf-8"))
    rows = [r for _, r in files.read_rows(workdir / "metrics.jsonl", appended=True)]
    steps = [row for row in rows if "seconds/step" in row]
    last = steps[-max(1, round(END * len(steps))) :]
    final: Mapping[str, Any] = summary["final"] or {}
    found = {
        "accuracy": final.get("accuracy"),
        "greedy_accuracy": final.get("greedy_accuracy"),
        "entropy": _mean(last, "policy/entropy"),
        "length": _mean(last, "length/all_mean"),
        "tokens": sum(row.get("sampling/tokens", 0) for row in steps),
        "minutes": summary["wall_seconds"],
    }
    if sigmoid := fit_sigmoid(*read_curve(rows, curve, SPENT[against])):
        found |= dataclasses.asdict(sigmoid)
    return {name: float(x) for name, x in found.items() if x is not None}


def _mean(rows: list[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if name in row]
    return float(np.mean(values)) if values else None
