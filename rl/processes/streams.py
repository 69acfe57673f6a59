"""Keeps a process running if stdout or stderr is closed or loses its reader."""

import contextlib
import io
import os
import sys
from typing import Any, TextIO


class _Outlasted:
    """Wraps a text stream; discards text after the stream has raised OSError."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            self._discard()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._discard()

    def _discard(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)
        with contextlib.suppress(OSError):
            self._stream.flush()  # discards buffered text


def outlast_output() -> None:
    """Wraps stdout and stderr so that `write` and `flush` never raise OSError.

    Characters that the encoding lacks are written as backslash escapes.
    """
    # Otherwise the next opened file gets a closed stream's number, and XLA's messages.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")
        if not isinstance(stream, _Outlasted):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, _Outlasted(stream))
