"""A child interpreter that can be cut off: the parent's side of `worker`.

Started by exec with a connection to the parent: nothing of the parent (JAX's threads,
device contexts, its `__main__`) is inherited or imported again.
"""

import multiprocessing
import os
import pathlib
import subprocess
import sys
from typing import Any

START_SECONDS = 120.0
_ROOT = str(pathlib.Path(__file__).resolve().parents[2])


class Child:
    """One worker process.

    Args:
      judge: "module:function" that it runs; see `worker`.
    """

    def __init__(self, judge: str):
        self._connection, theirs = multiprocessing.Pipe()
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rl.verifier.worker", str(theirs.fileno()), judge],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        theirs.close()
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def await_ready(self, patience: float = START_SECONDS) -> bool:
        """Whether the interpreter has started; no item's deadline includes it.

        Raises:
          EOFError, OSError: where it died on the way.
        """
        if not self._ready and self._connection.poll(patience):
            self._connection.recv()
            self._ready = True
        return self._ready

    def send(self, context: Any, items: tuple) -> None:
        """Asks for a verdict on each item."""
        self._connection.send((context, items))

    def receive(self, timeout: float) -> Any:
        """The next verdict.

        Raises:
          TimeoutError: past the deadline; the child is then of no more use.
          EOFError, OSError: where the child died.
        """
        if not self._connection.poll(timeout):
            raise TimeoutError
        return self._connection.recv()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()
