"""Runs a command whose whole process tree ends with the process that started it.

    python supervisor.py LIFELINE_FD -- COMMAND ...

The starting process holds the other end of the LIFELINE pipe. When that process ends,
even by `kill -9`, the kernel closes the pipe, and the supervisor ends the command's
process tree. A parent-death signal would reach only the first process of the tree.
This module imports only the standard library, to start in milliseconds.
"""

import contextlib
import ctypes
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

GRACE_SECONDS = 4.0
# Python's resource trackers end last; on a busy machine this takes seconds.
TRACKER_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def start(command: list[str], **popen: Any) -> tuple[subprocess.Popen, int]:
    """Starts a supervisor process that runs `command`; `popen` is passed to `Popen`.

    Returns the supervisor's process and the descriptor of a pipe. Close the pipe to end
    the process tree; write `k` first to skip the grace period.
    """
    reading, lifeline = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(reading), "--", *command],
        stdin=subprocess.DEVNULL,
        pass_fds=(reading,),
        # Ctrl-C must reach only this process, which then ends its servers.
        start_new_session=True,
        **popen,
    )
    os.close(reading)
    return process, lifeline


def descendants(root: int) -> list[int]:
    """Returns the ids of a process's descendants, without zombies."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in _processes():
        children.setdefault(parent, []).append(pid)
    found, frontier = [], [root]
    while frontier:
        frontier = [pid for parent in frontier for pid in children.get(parent, ())]
        found += frontier
    return found


def kill_tree(root: int) -> None:
    """Kills all descendants of `root`, including those started during the call."""
    _kill(lambda: descendants(root))


def kill_session(supervisor: int) -> None:
    """Kills the processes that are left in the session of an ended supervisor."""
    _kill(lambda: [pid for pid, _, s in _processes() if s == supervisor != pid])


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yields id, parent and session of each process that is not a zombie."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The command name may contain brackets; the fields follow the last one.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            yield int(entry.name), int(fields[1]), int(fields[3])


def _kill(find: Callable[[], list[int]]) -> None:
    """Kills the processes that `find` returns, until it returns none.

    Resource trackers are spared for `TRACKER_SECONDS`: they remove the shared memory of
    killed processes and then end.
    """
    spare_until = time.monotonic() + TRACKER_SECONDS
    while pids := find():
        for pid in pids:
            if time.monotonic() < spare_until and _is_tracker(pid):
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _is_tracker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"multiprocessing.resource_tracker" in command
    return False


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _on_sigterm(*_: Any) -> None:
    kill_tree(os.getpid())
    os._exit(143)


def main() -> int:
    lifeline, separator, *command = sys.argv[1:]
    if separator != "--" or not command:
        sys.exit(__doc__)
    # Orphaned processes of the tree become children of this process.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent
    )
    ended = os.pidfd_open(child.pid)
    ready, _, _ = select.select([int(lifeline), ended], [], [])
    at_once = int(lifeline) in ready and os.read(int(lifeline), 1) == b"k"
    if child.poll() is None and not at_once:
        child.terminate()
    if not at_once:
        deadline = time.monotonic() + GRACE_SECONDS
        while descendants(os.getpid()) and time.monotonic() < deadline:
            time.sleep(0.05)
    kill_tree(os.getpid())
    status = child.wait()
    return status if status >= 0 else 128 - status  # as a shell reports a signal


if __name__ == "__main__":
    # The default action of SIGTERM would not end the process tree.
    signal.signal(signal.SIGTERM, _on_sigterm)
    sys.exit(main())
