"""Loads additional metric loggers: Weights & Biases, or a user's own.

`log.sinks` names the loggers: "wandb", or "module:function" for a user's `Maker`. A
logger that raises an exception is removed with a warning; the run continues.
"""

import importlib.util
import pathlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rl.problems.functions import load_named


class Sink(Protocol):
    """Defines a metric logger; its methods are called in ascending order of steps."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Logs finite metrics by name; a step may have several calls."""

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Logs completions of a step: rows of samples.jsonl without the key "step"."""

    def close(self) -> None:
        """Closes the logger; no other call follows."""


Maker = Callable[..., Sink]
"""Opens a metric logger for a run: `maker(workdir, *, config, keep)`.

`config` holds the settings that differ from configs/base.py, by dotted key. `keep` is
the last step whose metrics stay when a run resumes; -1 for a new run.
"""


def load_sinks(*, sinks: Sequence[str]) -> dict[str, Maker]:
    """Returns the functions that open the loggers of `log.sinks`, by name."""
    key, known = "config.log.sinks", {"wandb": _WandbRun}
    makers = {name: load_named(name, known, key=key) for name in sinks}
    if "wandb" in makers and importlib.util.find_spec("wandb") is None:
        raise ValueError(f"{key}: wandb is not installed; run pip install wandb")
    return makers


class _WandbRun:
    def __init__(self, workdir: pathlib.Path, *, config, keep: int):
        import wandb

        self._table = wandb.Table
        id_file = workdir / "wandb_id"
        if keep < 0 or not id_file.is_file():
            id_file.write_text(secrets.token_hex(4), encoding="utf-8")
        self._run = wandb.init(
            id=id_file.read_text(encoding="utf-8"),
            resume="allow",
            name=workdir.name,
            dir=str(workdir),
            config=dict(config),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step, **values})

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = ["problem", "completion", "gold", "reward"]
        cells = [[row[column] for column in columns] for row in rows]
        table = self._table(columns=columns, data=cells)
        self._run.log({"step": step, "samples": table})

    def close(self) -> None:
        self._run.finish()
