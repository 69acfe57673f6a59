"""A connection between two processes of a run: messages in order, and signs of life.

Each link has a thread of its own that sends. Who says something hands it over and goes
on, so that a slow receiver holds up neither the others nor the signs of life to them.
"""

import collections
import os
import select
import socket
import threading
import time
from multiprocessing.connection import Connection

# A process whose host is gone or that is stopped closes no connection. Each says that
# it is there; after a silence the others end.
ALIVE_SECONDS = 5.0
SILENT_SECONDS = 40.0
# Messages that wait for a slow receiver before who sends them waits too.
_MOST_WAITING = 16
_LENGTH = 8  # bytes, little-endian, before each message
_PACKET = 1024  # bytes of a message that go with its length


class Silent(Exception):
    """Not a byte has come for `SILENT_SECONDS`."""


class Link:
    """One end of a connection; a message of no bytes is a sign of life."""

    def __init__(self, connection: Connection):
        """Takes the connection over, and begins to say that this process is there."""
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._waiting: collections.deque[bytes] = collections.deque()
        self._changed = threading.Condition()
        self._finished = False
        self._broken: OSError | None = None
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def send(self, message: bytes) -> None:
        """Sends a message after those before it; waits while too many wait.

        Does not return after `finish`: this process is about to end.

        Raises:
          OSError: the connection is broken, by this message or an earlier one.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._broken or not self._finished and self._has_room()
            )
            if self._broken:
                raise self._broken
            self._waiting.append(message)
            self._changed.notify_all()

    def finish(self, message: bytes, *, at_once: bool = False) -> None:
        """Sends a last message; `flush` waits for it.

        Args:
          message: to send.
          at_once: before all that waits, which is left out. What is on its way to the
            other process comes whole.
        """
        with self._changed:
            if at_once:
                self._waiting.clear()
            self._waiting.append(message)
            self._finished = True
            self._changed.notify_all()

    def flush(self, until: float) -> None:
        """Waits for the last message to be sent, to this time of the monotonic clock.

        Raises:
          OSError: the connection is broken.
        """
        self._thread.join(max(0, until - time.monotonic()))
        if self._broken:
            raise self._broken

    def receive(self, longest: int | None = None) -> bytearray:
        """The next message but for signs of life.

        Args:
          longest: bytes of a message; None takes any.

        Raises:
          Silent: see there. While the bytes of a long message come there is no silence.
          EOFError, OSError: the other process has closed the connection.
          ValueError: a longer message.
        """
        while True:
            size = int.from_bytes(self._read(_LENGTH), "little")
            if longest is not None and size > longest:
                raise ValueError(f"a message of {size:,} bytes, of at most {longest:,}")
            if size:
                return self._read(size)

    def _read(self, size: int) -> bytearray:
        try:
            data = bytearray(size)
        except (MemoryError, OverflowError):
            raise ValueError(f"a message of {size:,} bytes") from None
        rest = memoryview(data)
        while rest:
            if not self._readable.poll(1000 * SILENT_SECONDS):
                raise Silent(f"has said nothing for {SILENT_SECONDS:.0f} seconds")
            count = self._socket.recv_into(rest)
            if not count:
                raise EOFError
            rest = rest[count:]
        return data

    def _has_room(self) -> bool:
        return len(self._waiting) < _MOST_WAITING

    def _send_all(self) -> None:
        try:
            while (message := self._next()) is not None:
                length = len(message).to_bytes(_LENGTH, "little")
                self._socket.sendall(length + message[:_PACKET])
                self._socket.sendall(memoryview(message)[_PACKET:])
        except OSError as error:
            with self._changed:
                self._broken = error
                self._waiting.clear()
                self._changed.notify_all()

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or self._finished, ALIVE_SECONDS
            )
            if self._waiting:
                self._changed.notify_all()
                return self._waiting.popleft()
            return None if self._finished else b""
