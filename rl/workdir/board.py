"""Writes TensorBoard event files without TensorFlow, torch or threads."""

import pathlib
import re
import socket
import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from rl.files import markdown_table

FRONT = "Front"  # group of the main charts; TensorBoard sorts capital letters first


class Board:
    """Writes one TensorBoard event file; each start of a run writes its own.

    This is a metric logger (`rl.metric_loggers.Sink`). TensorBoard ignores steps after
    `keep` in older files. Scalars with a tag in `front` are also shown in the group
    `FRONT`.
    """

    # TensorBoard's own writer has a thread, which prints a traceback on a full disk.
    def __init__(
        self,
        workdir: pathlib.Path,
        *,
        config: Mapping[str, Any],
        keep: int,
        front: Set[str],
    ):
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
