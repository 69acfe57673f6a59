"""Runs a command whose whole process tree dies with the process that asked for it.

    python leash.py LIFELINE_FD REMOVE_DIR -- COMMAND ...

The asker keeps the other end of the LIFELINE pipe. However it ends, `kill -9`
included, the kernel closes that end; this process then ends the command's tree and
removes REMOVE_DIR ("" for none). A byte `k` on the pipe asks for the same at once,
without a grace period. A parent-death signal on the command alone would not do: vLLM
is an API server, an engine and its workers. Standard library only: it must start in
milliseconds.
"""

import ctypes
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

GRACE_SECONDS = 4.0
# Resource trackers begin when all others are gone; a busy machine takes seconds.
TRACKER_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def descendants(root: int) -> list[int]:
    """Ids of all processes below `root`, zombies left out."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in _processes():
        children.setdefault(parent, []).append(pid)
    found, frontier = [], [root]
    while frontier:
        frontier = [pid for parent in frontier for pid in children.get(parent, ())]
        found += frontier
    return found


def _processes() -> Iterator[tuple[int, int, int]]:
    """Of each process that is no zombie its id, its parent's and its session's."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The command may hold spaces and brackets; the fields follow the last one.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            yield int(entry.name), int(fields[1]), int(fields[3])


def kill_tree(root: int) -> None:
    """Kills what is below `root`, and what appears there meanwhile."""
    _kill(lambda: descendants(root))


def kill_session(leash: int) -> None:
    """Kills what a leash has left, which was killed itself: its tree has no root."""

    def left():
        found = list(_processes())
        # A number is nobody's anew while a session bears it; then it has a leader.
        if any(pid == leash for pid, _, _ in found):
            return []
        return [pid for pid, _, session in found if session == leash]

    _kill(left)


def _kill(find: Callable[[], list[int]]) -> None:
    """Kills what is found until nothing new is.

    Python's resource trackers come last: they remove the shared memory of processes
    that could not, and end by themselves.
    """
    spare_until = time.monotonic() + TRACKER_SECONDS
    while pids := find():
        for pid in pids:
            if time.monotonic() < spare_until and _is_tracker(pid):
                continue
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def _is_tracker(pid: int) -> bool:
    try:
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"multiprocessing.resource_tracker" in command


def start(command: list[str], *, remove: str = "", **popen) -> tuple[Any, int]:
    """Starts `command` on a leash that this process holds.

    Args:
      command: and its arguments.
      remove: a folder that goes when the command ends.
      **popen: passed to `subprocess.Popen`.

    Returns:
      The leash's process, below which the command's tree runs, and the end of the pipe
      that holds it: close it to end the tree, after writing `k` to skip the grace.
    """
    reading, lifeline = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(reading), remove, "--", *command],
        stdin=subprocess.DEVNULL,
        pass_fds=(reading,),
        # A Ctrl-C is for the asker, which then ends its trees in order.
        start_new_session=True,
        **popen,
    )
    os.close(reading)
    return process, lifeline


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    lifeline, remove, separator, *command = sys.argv[1:]
    if separator != "--" or not command:
        sys.exit(__doc__)
    # Whatever the tree's middle does, its leaves stay below this process.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
    if remove:
        shutil.rmtree(remove, ignore_errors=True)
    return child.wait()


if __name__ == "__main__":
    # SIGTERM must reach the clean-up too; the default action would skip it.
    signal.signal(signal.SIGTERM, lambda *_: (kill_tree(os.getpid()), os._exit(143)))
    sys.exit(main())
