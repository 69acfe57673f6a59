"""Keeps a process running if stdout or stderr is closed or loses its reader."""

import contextlib
import io
import os
import sys
from typing import Any


class _Outlasted(io.FileIO):
    """Discards what cannot be written."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or len(data)  # None if it would block
        except OSError:
            return len(data)


def outlast_output() -> None:
    """Replaces stdout and stderr so that `write` and `flush` never raise OSError.

    Characters that the encoding lacks are written as backslash escapes.
    """
    # Otherwise the next opened file gets a closed stream's number, and XLA's messages.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)  # None if it was closed
        raw = getattr(getattr(before, "buffer", None), "raw", None)
        if isinstance(raw, _Outlasted):
            continue
        with contextlib.suppress(OSError, AttributeError):
            before.flush()
        output = _Outlasted(number, "w", closefd=False)
        stream = io.TextIOWrapper(
            io.BufferedWriter(output),
            encoding=getattr(before, "encoding", None) or "utf-8",
            errors="backslashreplace",
            line_buffering=True,  # a worker that is ended loses no lines
        )
        setattr(sys, name, stream)
