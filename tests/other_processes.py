"""Starts other processes and waits for them, and mounts small disks."""

import contextlib
import os
import pathlib
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def python(*arguments: object, **how) -> subprocess.CompletedProcess[str]:
    """Runs Python from the root of the checkout and returns what it prints.

    The text of a program may be indented. `how` are arguments of `subprocess.run`.
    """
    how = {"cwd": ROOT, "capture_output": True, "text": True} | how
    return subprocess.run(_command(arguments), **how)


def start_python(*arguments: object, **how) -> subprocess.Popen[str]:
    """Starts Python as `python` does; its standard output can be read."""
    how = {"cwd": ROOT, "stdout": subprocess.PIPE, "text": True} | how
    return subprocess.Popen(_command(arguments), **how)


@contextlib.contextmanager
def started(commands, **how) -> Iterator[list[subprocess.Popen[str]]]:
    """Starts Python with each list of arguments; what runs at the end is killed.

    What they print can be read afterwards too.
    """
    how = {"stderr": subprocess.PIPE} | how
    processes = [start_python(*arguments, **how) for arguments in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def environment(**variables: str) -> dict[str, str]:
    """Variables of a command: without this process's devices and threads."""
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NPROC")}
    return kept | {"PYTHONPATH": str(ROOT)} | variables


def make_config(path: pathlib.Path, *lines: str, of="quickstart") -> pathlib.Path:
    """Writes a config file: another one's config `c`, after these lines."""
    body = [f"c = {of}.get_config()", *lines, "return c"]
    text = "".join(f"    {line}\n" for line in body)
    path.write_text(f"from configs import {of}\ndef get_config(text=''):\n{text}")
    return path


def dotted(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings of a run's config by their whole keys, from those of its sections."""
    flat: dict[str, object] = {}
    for key, value in settings.items():
        of_section = dotted(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{key}.{name}".rstrip("."): x for name, x in of_section.items()}
    return flat


def _command(arguments) -> list[str]:
    return [sys.executable, *(textwrap.dedent(str(a)) for a in arguments)]


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


@contextlib.contextmanager
def mounted(folder: pathlib.Path, options: str) -> Iterator[pathlib.Path]:
    """Mounts a small disk; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a small tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: pathlib.Path, *, leave: int = 0) -> pathlib.Path:
    """Fills a disk up to a given number of bytes; returns the file that does."""
    path = folder / "filler"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    if leave:
        os.truncate(path, path.stat().st_size - leave)
    return path


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
