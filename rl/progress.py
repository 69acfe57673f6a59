"""Shows the progress of long work on stderr.

A phase prints a line when it begins and when it ends. In between, a terminal shows a
progress bar, or the time if the total is not known; a log or a pipe gets a line every
ten seconds. With several processes only the leader prints.
"""

import contextlib
import contextvars
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator
from typing import TextIO, TypeVar

import tqdm

Thing = TypeVar("Thing")

BAR_SECONDS, LINE_SECONDS = 1.0, 10.0
_CLEAR = "\x1b[K"  # from the cursor to the end of the line


class Watch:
    """Counts finished units of work and shows the progress; made by `watch`."""

    def __init__(self, name: str, total: int | None, unit: str):
        self._name, self._total, self._unit = name, total, unit
        self._began = time.monotonic()
        self._done = 0
        # Rates are measured from the first update, which may include compilation.
        self._first: tuple[float, int] | None = None
        self.covered = False  # hidden while a nested watch is shown

    def update(self, done: int = 1) -> None:
        self._done += done
        self._first = self._first or (time.monotonic(), self._done)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def text(self, columns: int = 0) -> str:
        """Returns a line of progress, with a bar if a total and `columns` are given."""
        since, first = self._first or (self._began, 0)
        rate = (self._done - first) / max(time.monotonic() - since, 1e-9)
        if self._total and columns:
            return tqdm.tqdm.format_meter(
                self._done,
                self._total,
                self.seconds,
                ncols=columns,
                prefix=self._name,
                unit=f" {self._unit}",
                rate=rate,
            )
        line = f"{self._name}: "
        if self._total:
            line += f"{self._done:,} of {self._total:,} {self._unit}, "
        if not rate or not self._total:
            return f"{line}{duration(self.seconds)} so far"[: columns or None]
        left = duration((self._total - self._done) / rate)
        return f"{line}{rate:,.{0 if rate >= 10 else 2}f}/s, {left} left"

    def show(self, ended: threading.Event, stream: TextIO) -> None:
        terminal, shown = stream.isatty(), False
        while not ended.wait(BAR_SECONDS if terminal else LINE_SECONDS):
            if self.covered:
                continue
            shown = terminal
            if terminal:
                text = f"\r{self.text(_columns(stream) - 1)}{_CLEAR}"
                print(end=text, file=stream, flush=True)
            else:
                print(self.text(), file=stream, flush=True)
        if shown:
            print(end=f"\r{_CLEAR}", file=stream, flush=True)


def _columns(stream: TextIO) -> int:
    # Not `shutil.get_terminal_size`, which reads COLUMNS and the terminal of stdout.
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:  # the terminal was closed
        return 80


_hushed = threading.Event()
_within: contextvars.ContextVar[Watch | None] = contextvars.ContextVar(
    "_within", default=None
)


def hush() -> None:
    _hushed.set()


@contextlib.contextmanager
def watch(name: str, *, total: int | None = None, unit: str = "") -> Iterator[Watch]:
    """Shows the progress of the `with` block; yields a counter of finished units.

    `total` is the number of units; without it, only the time is shown. `unit` is a
    plural noun.
    A nested watch hides the outer one until the nested one ends.
    """
    count, outer = Watch(name, total, unit), _within.get()
    ended = threading.Event()
    shows = threading.Thread(target=count.show, args=(ended, sys.stderr), daemon=True)
    if not _hushed.is_set():
        shows.start()
    if outer:
        outer.covered = True
    token = _within.set(count)
    try:
        yield count
    finally:
        _within.reset(token)
        if outer:
            outer.covered = False
        ended.set()
        if shows.is_alive():
            shows.join()


@contextlib.contextmanager
def phase(
    name: str, what: str, *, total: int | None = None, unit: str = ""
) -> Iterator[Watch]:
    """Prints `what`, shows progress like `watch`, then prints the duration."""
    if not _hushed.is_set():
        print(f"{name}: {what}", file=sys.stderr, flush=True)
    with watch(name, total=total, unit=unit) as count:
        yield count
    if not _hushed.is_set():
        text = f"{name}: done in {duration(count.seconds)}"
        print(text, file=sys.stderr, flush=True)


def each(things: Collection[Thing], name: str, unit: str) -> Iterator[Thing]:
    """Yields the elements of a collection and shows how many are done."""
    with watch(name, total=len(things), unit=unit) as count:
        for thing in things:
            yield thing
            count.update()


def duration(seconds: float) -> str:
    """Formats seconds as text, such as "2 min 05 s"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
