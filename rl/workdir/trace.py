"""Profiles selected steps: device programs, and the phases of the loop by name."""

import contextlib
import pathlib
from collections.abc import Sequence

import jax


class Trace(contextlib.AbstractContextManager["Trace"]):
    """Writes this process's traces to `WORKDIR/profile`.

    TensorBoard, XProf and Perfetto can show them. A step's trace ends when the next
    step begins, so it may include an evaluation.
    """

    def __init__(self, workdir: pathlib.Path, *, steps: Sequence[int]):
        """
        Args:
          workdir: folder of the run.
          steps: the first and the last step to trace, counted from 1; empty for none.
        """
        self._first, self._last = steps or (0, 0)
        self._folder = workdir / "profile"
        self._running = False
        self._trace, self._step = contextlib.ExitStack(), contextlib.ExitStack()

    def begin(self, step: int) -> None:
        """Ends the trace of the previous step and begins that of `step` if selected."""
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
