"""The child side: works on what arrives, until the parent is gone.

Started as `python -m rl.verifier.worker FD PARENT`, it is told the rest over the
connection: where to look for modules, and the "module:function" to run. That is called
with the context of a request and returns what makes a result of one item.
"""

import contextlib
import ctypes
import importlib
import multiprocessing.connection
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence

from rl.verifier.contract import Examiner, Verdict
from rl.verifier.equivalence import self_check

_MEMORY_BYTES = 1 << 30
_PR_SET_PDEATHSIG = 1


def examine(golds: Sequence[str], problem: str | None) -> Callable[[str], Verdict]:
    """The verdict of the rule-based verifier, with golds and problem read once."""
    return Examiner(golds, problem).judge


def read_golds() -> Callable[[str], str | None]:
    """Why an answer cannot serve as a gold, or None where it can."""
    return self_check


def _die_with_parent(parent: int) -> None:
    """The kernel ends this process with its parent, even where it hangs in C."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _take_along(descriptor: int) -> None:
    """What this process starts is killed with it, however it ends.

    A child waits for the end of its parent, and then ends the process group.
    """
    own = os.getpid()
    if os.fork():
        return
    os.close(descriptor)
    # Not by one that a scheduler sends to every process of a run.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGRTMIN)
    if os.getppid() == own:
        signal.sigwait({signal.SIGRTMIN})
    os.killpg(own, signal.SIGKILL)


def main(descriptor: int, parent: int) -> None:
    """Answers requests on a connection."""
    _die_with_parent(parent)
    connection = multiprocessing.connection.Connection(descriptor)
    sys.path[:], function, preload, confined = connection.recv()
    if confined:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    else:
        _take_along(descriptor)
    for name in preload:
        # Whatever is wrong with it is said where it is used.
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
    module, name = function.split(":")
    make_work = getattr(importlib.import_module(module), name)
    connection.send("ready")
    while True:
        try:
            context, items = connection.recv()
        except (EOFError, OSError):
            return
        connection.send("taken")
        work = make_work(*context)
        for item in items:
            connection.send(work(item))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
