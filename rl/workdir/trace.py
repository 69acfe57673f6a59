"""Profiles selected steps: device programs, and the phases of the loop by name."""

import contextlib
import pathlib
from collections.abc import Sequence

import jax


class Trace(contextlib.AbstractContextManager["Trace"]):
    """Writes one trace of this process to `WORKDIR/profile`, for TensorBoard or XProf.

    `steps` has the first and last step to trace, counted from 1; () traces none. A step
    ends when the next begins, so it may include an evaluation.
    """

    def __init__(self, workdir: pathlib.Path, *, steps: Sequence[int]):
        self._first, self._last = steps or (0, 0)
        self._folder = workdir / "profile"
        self._running = False
        self._trace, self._step = contextlib.ExitStack(), contextlib.ExitStack()

    def begin(self, step: int) -> None:
        self._step.close()
        within = self._first <= step <= self._last
        if self._running and not within:
            self._trace.close()
        if within and not self._running:
            self._trace.enter_context(jax.profiler.trace(self._folder))
        self._running = within
        if within:
            annotation = jax.profiler.StepTraceAnnotation("step", step_num=step)
            self._step.enter_context(annotation)

    def __exit__(self, *_) -> None:
        self._step.close()
        self._trace.close()
