"""Write TensorBoard event files without TensorFlow, torch or threads."""

import dataclasses
import pathlib
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from rl.files import markdown_table, named

FRONT = "Front"
"""Group of the main charts; TensorBoard sorts a capital before other groups."""


@dataclasses.dataclass(slots=True)
class _Flat:
    """Holds a series that is constant so far, with its first and last point."""

    value: float
    first: tuple[int, float]
    last: tuple[int, float]


class Board:
    """Writes the event file of one start.

    It is a `rl.metric_loggers.Sink`. A series that has never changed gets no chart: it
    is held back until it changes, and is then written with the first and last point of
    its constant part.

    TensorBoard's own writer is not used: on a full disk it prints the traceback of a
    thread.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        keep: int,
        before: Iterable[Mapping[str, float]] = (),
        front: Collection[str] = (),
        config: Mapping[str, Any] | None = None,
    ):
        """
        Args:
          folder: of the event files.
          keep: the last step whose points stay; TensorBoard drops later points of
            earlier starts.
          before: rows of earlier starts that stay, each with its `step`.
          front: tags that are also shown in the front group.
          config: hyperparameters.
        """
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self._path = folder / name
        self._file = self._path.open("xb")
        self._records = RecordWriter(self._file)
        self._flat: dict[str, _Flat | None] = {}
        self._front = front
        now = time.time()
        for row in before:
            for tag, value in row.items():
                if tag != "step":
                    self._points(tag, value, int(row["step"]), now)
        self._write(Event(wall_time=now, file_version="brain.Event:2"))
        self._event(keep + 1, session_log=SessionLog(status=SessionLog.START))
        if config:
            scalar = bool | int | float | str
            plain = {
                k: v if isinstance(v, scalar) else str(v) for k, v in config.items()
            }
            self._event(0, summary=hparams_pb(plain, start_time_secs=now))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write a point per tag; values are finite."""
        now = time.time()
        points: dict[tuple[int, float], list[Summary.Value]] = {}
        for tag, value in values.items():
            tags = [tag]
            if tag in self._front:
                tags.append(f"{FRONT}/{tag.replace('/', ' ')}")
            for at, when, what in self._points(tag, value, step, now):
                points.setdefault((at, when), []).extend(
                    Summary.Value(tag=name, simple_value=what) for name in tags
                )
        for (at, when), found in sorted(points.items(), key=lambda point: point[0]):
            self._write(Event(wall_time=when, step=at, summary=Summary(value=found)))
        with named(self._path):
            self._file.flush()

    def _points(
        self, tag: str, value: float, step: int, now: float
    ) -> list[tuple[int, float, float]]:
        """Return points (step, time, value) to write now that this one is known."""
        if tag not in self._flat:
            self._flat[tag] = _Flat(value, (step, now), (step, now))
            return []
        flat = self._flat[tag]
        if flat is None:
            return [(step, now, value)]
        if value == flat.value:
            flat.last = step, now
            return []
        self._flat[tag] = None
        constant = dict.fromkeys((flat.first, flat.last))
        return [*((*point, flat.value) for point in constant), (step, now, value)]

    def histograms(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        """Write distributions, each of at least one value."""
        for tag, array in values.items():
            self._event(step, summary=histogram_pb(tag, array))

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write completions as a table."""
        columns = ("prompt", "completion", "gold", "reward")
        table = markdown_table(columns, [[str(r[c]) for c in columns] for r in rows])
        self._event(step, summary=text_pb("samples", "\n".join(table)))

    def _event(self, step: int, **content) -> None:
        self._write(Event(wall_time=time.time(), step=step, **content))

    def _write(self, event: Event) -> None:
        with named(self._path):
            self._records.write(event.SerializeToString())

    def close(self) -> None:
        with named(self._path), self._file:
            self._file.flush()
