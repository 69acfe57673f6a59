"""Starts a worker process and exchanges messages with it over a pipe.

Deadlines use no signals, so any thread may use a worker, but only one at a time. A
worker sends one message when it has started, and then the result of each item.
"""

import contextlib
import importlib
import multiprocessing.connection
import os
import pathlib
import resource
import signal
import subprocess
import sys
from typing import Any

_START_SECONDS = 120.0
_MEMORY_BYTES = 1 << 30
# Prefixes of the variables that confined workers inherit; no API keys or tokens.
_NEEDS = ("PATH", "HOME", "LANG", "LC_", "TMPDIR", "LD_LIBRARY_PATH", "PYTHON")
_ROOT = str(pathlib.Path(__file__).resolve().parents[__name__.count(".")])


class Worker:
    """Runs a function in another process; see `pool.Workers` for the arguments."""

    def __init__(self, function: str, preload: tuple[str, ...], confined: bool):
        self._pipe, theirs = multiprocessing.Pipe()
        names = (n for n in os.environ if not confined or n.startswith(_NEEDS))
        # A user's function may import JAX; the accelerators belong to the trainer.
        env = {n: os.environ[n] for n in names} | {"JAX_PLATFORMS": "cpu"}
        env["PYTHONPATH"] = os.pathsep.join([_ROOT, env.get("PYTHONPATH", "")])
        fd = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve({fd})"],
                env=env, pass_fds=[fd], stdin=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        self.pid, self._ready = self._process.pid, False
        with contextlib.suppress(OSError):  # a worker that died is detected later
            self._pipe.send((sys.path, function, preload, confined))

    def wait_until_ready(self) -> None:
        """Waits until the worker has started; deadlines of items exclude this time."""
        self._ready = self._ready or self._receive(_START_SECONDS)

    def ask(self, context: tuple, item: Any, timeout: float) -> Any:
        """Returns the result of an item.

        Raises:
          TimeoutError: if the worker does not start or answer in time.
          EOFError or OSError: if the worker died, for instance by an exception.
        """
        self.wait_until_ready()
        self._pipe.send((context, item))
        return self._receive(timeout)

    def _receive(self, timeout: float) -> Any:
        if not self._pipe.poll(timeout):
            what = f"the worker did not start or answer within {timeout:g} s"
            raise TimeoutError(f"{what}; free CPUs or memory")
        return self._pipe.recv()

    def kill(self) -> None:
        """Kills the worker and all other processes of its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()
        self._pipe.close()


def serve(fd: int) -> None:
    """Answers requests from the pipe `fd` until the pipe closes; runs in a worker."""
    # Only the parent handles signals. SLURM sends them to all processes of a job.
    names = "SIGINT SIGTERM SIGHUP SIGUSR1 SIGUSR2".split()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.Signals[n] for n in names])
    if os.fork():
        # This process only waits for the end of its stdin, when the parent exits.
        # It then kills its process group, including the processes of a user's function.
        os.close(fd)
        sys.stdin.read()
        os.killpg(0, signal.SIGKILL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    pipe = multiprocessing.connection.Connection(fd)
    sys.path[:], function, preload, confined = pipe.recv()
    if confined:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    for name in preload:
        with contextlib.suppress(BaseException):  # the error recurs at its use
            importlib.import_module(name)
    module, name = function.split(":")
    make_work = getattr(importlib.import_module(module), name)
    pipe.send(True)
    known, work = None, None
    with contextlib.suppress(EOFError):
        while True:
            context, item = pipe.recv()
            if work is None or context != known:
                known, work = context, make_work(*context)
            pipe.send(work(item))
