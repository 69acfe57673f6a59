"""Starts other processes, and waits for them."""

import pathlib
import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 30) -> None:
    """Fails if a condition does not become true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not after {seconds} s"
        time.sleep(0.05)


def make_program(path: pathlib.Path, script: str) -> pathlib.Path:
    """Writes a shell script that can be started by its path."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
