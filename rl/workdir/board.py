"""Write TensorBoard event files without TensorFlow, torch or threads."""

import dataclasses
import pathlib
import re
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_DOUBLE, DT_STRING
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalars
from tensorboard.plugins.histogram import metadata as histograms
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.summary.writer.record_writer import RecordWriter

from rl.files import named

FRONT = "Front"
"""Group of the main charts; TensorBoard sorts a capital before other groups."""

_BINS = 30


@dataclasses.dataclass(slots=True)
class _Flat:
    """Holds a series that is constant so far, with its first and last point."""

    value: float
    first: tuple[int, float]
    last: tuple[int, float]


class Board:
    """Writes the event file of one start.

    A series that has never changed gets no chart: it is held back until it changes, and
    is then written with the first and last point of its constant part.

    TensorBoard's own writer is not used: on a full disk it prints the traceback of a
    thread.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        keep: int,
        before: Iterable[Mapping[str, float]] = (),
        front: Mapping[str, Sequence[str]] | None = None,
        config: Mapping[str, Any] | None = None,
    ):
        """
        Args:
          folder: of the event files.
          keep: the last step whose points stay; TensorBoard drops later points of
            earlier starts.
          before: rows of earlier starts that stay, each with its `step`.
          front: tags by the title of the chart in the front group.
          config: hyperparameters.
        """
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self._path = folder / name
        self._file = self._path.open("xb")
        self._records = RecordWriter(self._file)
        self._flat: dict[str, _Flat | None] = {}
        front = front or {}
        self._front = {tag for tags in front.values() for tag in tags}
        now = time.time()
        for row in before:
            for tag, value in row.items():
                if tag != "step":
                    self._points(tag, value, int(row["step"]), now)
        self._write(Event(wall_time=now, file_version="brain.Event:2"))
        self._event(keep + 1, session_log=SessionLog(status=SessionLog.START))
        if front:
            self._value(_layout(front), 0)
        if config:
            plain = {k: _of_hparams(v) for k, v in config.items()}
            self._event(0, summary=hparams.hparams_pb(plain, start_time_secs=now))

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

    def histogram(self, tag: str, values: np.ndarray, step: int) -> None:
        """Write the distribution of at least one value."""
        counts, edges = np.histogram(np.asarray(values, np.float64), _BINS)
        buckets = np.stack([edges[:-1], edges[1:], counts], axis=1)
        shape = TensorShapeProto(
            dim=[TensorShapeProto.Dim(size=size) for size in buckets.shape]
        )
        tensor = TensorProto(
            dtype=DT_DOUBLE, tensor_shape=shape, tensor_content=buckets.tobytes()
        )
        metadata = histograms.create_summary_metadata(tag, "")
        self._value(Summary.Value(tag=tag, metadata=metadata, tensor=tensor), step)

    def text(self, tag: str, markdown: str, step: int) -> None:
        metadata = SummaryMetadata(
            plugin_data=SummaryMetadata.PluginData(plugin_name="text")
        )
        tensor = _string(markdown.encode(), size=1)
        self._value(Summary.Value(tag=tag, metadata=metadata, tensor=tensor), step)

    def _value(self, value: Summary.Value, step: int) -> None:
        self._event(step, summary=Summary(value=[value]))

    def _event(self, step: int, **content) -> None:
        self._write(Event(wall_time=time.time(), step=step, **content))

    def _write(self, event: Event) -> None:
        with named(self._path):
            self._records.write(event.SerializeToString())

    def flush(self) -> None:
        with named(self._path):
            self._file.flush()

    def close(self) -> None:
        with named(self._path), self._file:
            self._file.flush()


def _layout(front: Mapping[str, Sequence[str]]) -> Summary.Value:
    """Return the layout of Custom Scalars: these charts in one category."""
    charts = [
        layout_pb2.Chart(
            title=title,
            multiline=layout_pb2.MultilineChartContent(
                tag=[f"^{re.escape(tag)}$" for tag in tags]
            ),
        )
        for title, tags in front.items()
    ]
    layout = layout_pb2.Layout(
        category=[layout_pb2.Category(title=FRONT, chart=charts)]
    )
    return Summary.Value(
        tag=custom_scalars.CONFIG_SUMMARY_TAG,
        metadata=custom_scalars.create_summary_metadata(),
        tensor=_string(layout.SerializeToString()),
    )


def _string(data: bytes, *, size: int | None = None) -> TensorProto:
    """Return bytes as a scalar, or as a vector of one entry."""
    dims = [] if size is None else [TensorShapeProto.Dim(size=size)]
    shape = TensorShapeProto(dim=dims)
    return TensorProto(dtype=DT_STRING, string_val=[data], tensor_shape=shape)


def _of_hparams(value: Any) -> bool | float | str:
    return value if isinstance(value, bool | int | float | str) else str(value)
