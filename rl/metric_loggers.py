"""Defines metric loggers: TensorBoard, Weights & Biases, or a user's own.

`log.sinks` names additional loggers: "wandb", or "module:function" for a user's
`Maker`. A logger that raises an exception is removed with a warning; the run continues.
TensorBoard's event files are written without TensorFlow, torch or threads.
"""

import importlib.util
import pathlib
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Protocol

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from rl.files import markdown_table
from rl.problems.functions import load_named

FRONT = "Front"  # group of the main charts; TensorBoard sorts capital letters first


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


class Board:
    """Writes one TensorBoard event file; each start of a run writes its own.

    TensorBoard ignores steps after `keep` in older files. Scalars with a tag in `front`
    are also shown in the group `FRONT`.
    """

    # TensorBoard's own writer has a thread, which prints a traceback on a full disk.
    def __init__(self, workdir: pathlib.Path, *, config, keep: int, front: Set[str]):
        folder = workdir / "tensorboard"
        folder.mkdir(exist_ok=True)
        # TensorBoard reads files by name, and the clock may have been set back.
        parts = (p.name.split(".") for p in folder.glob("events.out.tfevents.*"))
        earlier = [int(part[3]) for part in parts if part[3].isdigit()]
        number = max([time.time_ns(), *(n + 1 for n in earlier)])
        name = f"events.out.tfevents.{number}.{socket.gethostname()}"
        self._file = (folder / name).open("xb")
        self._records = RecordWriter(self._file)
        self._front = front
        self._write(file_version="brain.Event:2")
        self._write(keep + 1, session_log=SessionLog(status=SessionLog.START))
        if config:
            scalar, settings = bool | int | float | str, config.items()
            plain = {k: v if isinstance(v, scalar) else str(v) for k, v in settings}
            self._write(summary=hparams_pb(plain, start_time_secs=time.time()))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        points = dict(values)
        for tag in self._front & values.keys():
            points[f"{FRONT}/{tag.replace('/', ' ')}"] = values[tag]
        found = [Summary.Value(tag=t, simple_value=v) for t, v in points.items()]
        self._write(step, summary=Summary(value=found))
        self._file.flush()

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = ("prompt", "completion", "gold", "reward")
        cells = [[_as_written(str(row[c])) for c in columns] for row in rows]
        table = markdown_table(columns, cells)
        self._write(step, summary=text_pb("samples", "\n".join(table)))

    def _write(self, step: int = 0, **content: Any) -> None:
        event = Event(wall_time=time.time(), step=step, **content)
        self._records.write(event.SerializeToString())

    def close(self) -> None:
        self._file.close()


def _as_written(text: str) -> str:
    """Returns Markdown that shows `text` as it is, such as formulas and `__init__`."""
    return re.sub(r"[\\`*_\[\]<>&~|]", lambda found: f"&#{ord(found[0])};", text)
