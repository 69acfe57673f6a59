"""Connects the processes of a run: sends the leader's commands and ends all processes.

The leader (process 0) hosts JAX's coordination service. The leader writes each command
to a numbered key of the service's key-value store; the last follower that reads the key
deletes it. The store transfers only 10 MB/s, so a long command is broadcast over the
devices and the store holds only its size. JAX's heartbeats detect dead processes.

Any process ends the run by setting the key `_END`, at which all processes exit.
"""

import contextlib
import itertools
import json
import os
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import numpy as np

# JAX has no public name for its coordination service.
from jax._src.distributed import global_state
from jax.experimental import multihost_utils

from rl.processes.messages import Message, decode, encode
from rl.processes.stopping import ERROR, SingleProcess, say

HEARTBEAT_SECONDS = 30
_BARRIER_SECONDS = 60
_POLL_SECONDS = 1.0
# Delay before a process is reported as lost: its own error message may still arrive.
_CAUSE_SECONDS = 2.0
# Longest time that a process waits until the others have read the exit status.
_LEAVE_SECONDS = 5
_YEAR_MS = 365 * 24 * 3600 * 1000
_LOST = "see its output, then start all processes again"
_CALL, _SIGNAL, _END = "rl/call", "rl/signal", "rl/end"
_STORE_BYTES = 1 << 16  # maximum size of a command in the key-value store
_CHUNK = 1 << 20  # bytes of one broadcast over the devices

Errors = tuple[type[Exception], ...]


class _Group(SingleProcess):
    """Represents one of several processes; an error in its `with` block ends all.

    `expected_errors` are printed without a traceback.
    """

    alone = False

    def __init__(self, expected_errors: Errors):
        self._expected = expected_errors
        self._client: Any = global_state.client
        self._index = jax.process_index()
        self._everyone = list(range(jax.process_count()))
        self._calls = (f"{_CALL}/{number}" for number in itertools.count())
        _in_thread(self._watch_end)
        self._barrier("start")
        _in_thread(self._watch_processes)

    def signal(self, number: int) -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # already set
            self._client.key_value_set(_SIGNAL, str(number))

    def abandon(self, status: int) -> None:
        self._end_all(status)

    def end(self, status: int) -> None:
        self._barrier("done")
        self._end_all(status)

    def __exit__(self, kind, error, trace) -> None:
        if error is None:
            return
        if isinstance(error, jax.errors.JaxRuntimeError):
            # Usually a collective lost a process; let a watcher report which one.
            time.sleep(HEARTBEAT_SECONDS + 10)
        if not isinstance(error, self._expected):
            with contextlib.suppress(OSError):  # stderr may be a closed pipe
                traceback.print_exception(error)
        self._end_all(ERROR, str(error) or repr(error), self._index)

    def _watch_processes(self) -> None:
        first: dict[int, int] = {}
        while True:
            time.sleep(_POLL_SECONDS)
            try:
                live = self._client.get_live_nodes(self._everyone)
            except jax.errors.JaxRuntimeError:
                return  # the leader has died; `_watch_end` reports it
            first = first or live
            for index in self._everyone:
                if live.get(index) != first.get(index, -1):  # died or was restarted
                    time.sleep(_CAUSE_SECONDS)
                    self._end_all(ERROR, f"process {index} died or hangs; {_LOST}")

    def _watch_end(self) -> None:
        """Ends this process if a process calls `_end_all`, or if process 0 is lost."""
        try:
            end = json.loads(self._wait_for(_END))
        except jax.errors.JaxRuntimeError:
            end_process(ERROR, f"process 0 died or cannot be reached; {_LOST}")
        failed, reason = end["process"], end["reason"]
        _report(
            reason if failed in (None, self._index) else f"process {failed}: {reason}"
        )
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            self._client.wait_at_barrier("rl/left", 1000 * _LEAVE_SECONDS)
        if self.leads:  # JAX aborts processes that lose the leader's service too early
            time.sleep(0.3)
        os._exit(end["status"])

    def _end_all(
        self, status: int, reason: str = "", process: int | None = None
    ) -> NoReturn:
        """Ends every process; each prints `reason`, unless it is empty.

        `process` is the index of the process with the error, if known; the others print
        it before `reason`. Only the first call in all processes has an effect.
        """
        end = {"status": status, "reason": reason, "process": process}
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # already set
            self._client.key_value_set(_END, json.dumps(end))
        time.sleep(2 * _LEAVE_SECONDS)  # `_watch_end` ends this process
        end_process(status, reason)

    def _wait_for(self, key: str) -> bytes:
        return self._client.blocking_key_value_get_bytes(key, _YEAR_MS)

    def _barrier(self, name: str) -> None:
        self._client.wait_at_barrier(f"rl/{name}", 1000 * _BARRIER_SECONDS)


class Leader(_Group):
    """Represents process 0, which runs the training loop and sends commands."""

    def watch_signals(self, on_signal: Callable[[int], None]) -> None:
        _in_thread(lambda: on_signal(int(self._wait_for(_SIGNAL))))

    def announce(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Sends a command to all followers; must be called in the main thread."""
        # In another thread the order of joint calls would be undefined.
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                f"command {name!r}: must be sent from the main thread, not from"
                f" {threading.current_thread().name}"
            )
        message = encode(name, *args, **kwargs)
        size, short = len(message), len(message) <= _STORE_BYTES
        value = size.to_bytes(8, "little") + (message if short else b"")
        self._client.key_value_set_bytes(next(self._calls), value)
        if not short:
            _broadcast(size, message)

    def end(self, status: int) -> None:
        self.announce("end", status)
        super().end(status)


class Follower(_Group):
    """Represents a process that executes the leader's commands."""

    leads = False

    def receive(self) -> Message:
        key = next(self._calls)
        value = self._wait_for(key)
        readers = self._client.key_value_increment(f"{key}/readers", 1)
        if readers == len(self._everyone) - 1:
            self._client.key_value_delete(key)  # with all keys below it
        size = int.from_bytes(value[:8], "little")
        return decode(value[8:] or _broadcast(size))


Processes = SingleProcess | Leader | Follower


def _broadcast(size: int, message: bytes = b"") -> bytes:
    """Broadcasts the leader's message of `size` bytes over the devices; returns it."""
    chunks = []
    for start in range(0, size, _CHUNK):
        part = message[start : start + _CHUNK].ljust(_CHUNK, b"\0")
        chunk = multihost_utils.broadcast_one_to_all(np.frombuffer(part, np.uint32))
        chunks.append(np.asarray(chunk).tobytes())
    return b"".join(chunks)[:size]


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _report(reason: str) -> None:
    if reason:
        say(f"error: {' '.join(reason.split())}")


def end_process(status: int, reason: str) -> NoReturn:
    _report(reason)
    os._exit(status)
