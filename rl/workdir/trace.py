"""Profiles selected steps: device programs, and the phases of the loop by name."""

import contextlib
import pathlib
from collections.abc import Sequence

import jax


class Trace(contextlib.AbstractContextManager["Trace"]):
    """Writes one trace of this process's selected steps to `WORKDIR/profile`.

    TensorBoard, XProf and Perfetto can show it. A step ends in the trace when the next
    step begins, so it may include an evaluation.
    """

    def __init__(self, workdir: pathlib.Path, *, steps: Sequence[int]):
        """Takes the first and the last step to trace, counted from 1; or no steps."""
        self._first, self._last = steps or (0, 0)
        self._folder = workdir / "profile"
        self._running = False
        self._trace, self._step = contextlib.ExitStack(), contextlib.ExitStack()

    def begin(self, step: int) -> None:
        """Begins a step; starts the trace, or ends it after the last selected step."""
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
