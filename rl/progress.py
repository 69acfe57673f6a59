"""What a run is doing now: how far it is, how fast, and how long still.

A phase is told in a line when it begins and in one when it is done. What takes longer
than a moment shows how far it is meanwhile: as a bar on a terminal, and where stderr is
none (a log, a pipe) in a plain line every ten seconds. With several processes the
leader's alone: the others `hush`. All of it goes to stderr; results go to stdout.
"""

import contextlib
import contextvars
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TextIO, TypeVar

import tqdm

from rollout.types import (
    Completion,
    OnFinished,
    OnPause,
    Sampler,
    SamplingParams,
    SoFar,
    so_far,
)

Thing = TypeVar("Thing")

BAR_SECONDS, LINE_SECONDS = 1.0, 10.0


class Watch:
    """Counts what is done of something; see `watch`."""

    def __init__(self, name: str, total: int | None, unit: str):
        self._name, self._total, self._unit = name, total, unit
        self._began = time.time()
        self._done = 0
        # Rates are counted from here on: what is first may have to be compiled.
        self._first: tuple[float, int] | None = None
        self.covered = False  # by another one, within it

    def update(self, done: int = 1) -> None:
        """So many more of them are done."""
        self._done += done
        self._first = self._first or (time.time(), self._done)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.time() - self._began

    def line(self) -> str:
        """How far it is, in words."""
        if not self._total:
            return f"{self._name}: {duration(self.seconds)} so far"
        told = f"{self._name}: {self._done:,} of {self._total:,} {self._unit}"
        since, first = self._first or (self._began, 0)
        if self._done == first:
            return f"{told}, {duration(self.seconds)} so far"
        rate = (self._done - first) / (time.time() - since)
        left = (self._total - self._done) / rate
        return f"{told}, {rate:,.{0 if rate >= 10 else 2}f}/s, {duration(left)} left"

    def show(self, ended: threading.Event, stream: TextIO) -> None:
        """Shows it now and then, until it has ended."""
        if not stream.isatty():
            while not ended.wait(LINE_SECONDS):
                if not self.covered:
                    print(self.line(), file=stream, flush=True)
            return
        bar = None
        while not ended.wait(BAR_SECONDS):
            if self.covered:
                continue
            if bar is None:
                bar = tqdm.tqdm(
                    desc=self._name,
                    total=self._total,
                    unit=f" {self._unit}",
                    leave=False,
                    file=stream,
                    dynamic_ncols=True,
                )
            bar.start_t, bar.initial = self._first or (self._began, 0)
            bar.n = self._done
            bar.refresh()
        if bar is not None:
            bar.close()


_hushed = threading.Event()
_within: contextvars.ContextVar[Watch | None] = contextvars.ContextVar(
    "_within", default=None
)


def hush() -> None:
    """From here on this process tells nothing: another of its run does."""
    _hushed.set()


@contextlib.contextmanager
def watch(name: str, *, total: int | None = None, unit: str = "") -> Iterator[Watch]:
    """Shows how far something is that may take long.

    One within another covers it, until it has ended.

    Args:
      name: of the phase.
      total: how many there are to do; without, only the time is shown.
      unit: what is counted, in the plural.

    Yields:
      What counts them.
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
    """A `watch` that is told in a line when it begins, and in one when it is done."""
    if not _hushed.is_set():
        print(f"{name}: {what}", file=sys.stderr, flush=True)
    with watch(name, total=total, unit=unit) as count:
        yield count
    if not _hushed.is_set():
        told = f"{name}: done in {duration(count.seconds)}"
        print(told, file=sys.stderr, flush=True)


def each(things: Collection[Thing], name: str, unit: str) -> Iterator[Thing]:
    """The things one by one, in a `watch` that counts them."""
    with watch(name, total=len(things), unit=unit) as count:
        for thing in things:
            yield thing
            count.update()


class WatchedSampler:
    """A sampler whose calls show how many of their completions have ended.

    `check_stop` is called now and then and may raise, which ends the call.
    """

    def __init__(
        self,
        sampler: Sampler,
        name: str,
        check_stop: Callable[[], None] = lambda: None,
    ):
        self._sampler, self._name, self._check_stop = sampler, name, check_stop

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        begun: SoFar | None = None,
        on_finished: OnFinished | None = None,
        on_pause: OnPause | None = None,
    ) -> list[list[Completion]]:
        """See `rollout.types.Sampler.sample`."""
        so_many = so_far(prompts, params, begun)
        total = sum(c.unfinished for completions in so_many for c in completions)

        def finished(prompt: int, sample: int, completion: Completion) -> None:
            count.update()
            if on_finished is not None:
                on_finished(prompt, sample, completion)

        def pause() -> bool | None:
            self._check_stop()
            return None if on_pause is None else on_pause()

        with watch(self._name, total=total, unit="completions") as count:
            return self._sampler.sample(
                prompts,
                params,
                seed=seed,
                begun=begun,
                on_finished=finished,
                on_pause=pause,
            )

    def close(self) -> None:
        """Close nothing: the sampler stays its owner's."""


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
