"""TensorBoard event files by tensorboard's own writer: no TensorFlow, no torch."""

import pathlib
import time

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter


class Board:
    """Scalars and texts of one run."""

    def __init__(self, folder: pathlib.Path, *, keep: int):
        """
        Args:
          folder: of the event files.
          keep: the last step whose points stay; TensorBoard drops later ones that an
            earlier start of the run left behind.
        """
        self._writer = EventFileWriter(str(folder))
        self._add(keep + 1, session_log=SessionLog(status=SessionLog.START))

    def scalar(self, name: str, value: float, step: int) -> None:
        self._add(
            step, summary=Summary(value=[Summary.Value(tag=name, simple_value=value)])
        )

    def text(self, name: str, markdown: str, step: int) -> None:
        metadata = SummaryMetadata(
            plugin_data=SummaryMetadata.PluginData(plugin_name="text")
        )
        tensor = TensorProto(
            dtype=DT_STRING,
            string_val=[markdown.encode()],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )
        value = Summary.Value(tag=name, metadata=metadata, tensor=tensor)
        self._add(step, summary=Summary(value=[value]))

    def _add(self, step: int, **content) -> None:
        self._writer.add_event(Event(wall_time=time.time(), step=step, **content))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
