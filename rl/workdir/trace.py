"""Profile some steps: device programs, and the phases of the loop by name."""

import pathlib
from collections.abc import Sequence
from typing import Self

import jax


class Trace:
    """Writes `WORKDIR/profile` of this process, for TensorBoard, XProf or Perfetto.

    A step lasts until the next one begins, so its trace includes an evaluation after
    it.
    """

    def __init__(self, workdir: pathlib.Path, *, steps: Sequence[int]):
        """
        Args:
          workdir: of the run.
          steps: the first and the last traced step, counted from 1; empty for none.
        """
        self._first, self._last = steps or (0, 0)
        self._folder = workdir / "profile"
        self._running = False
        self._step: jax.profiler.StepTraceAnnotation | None = None

    def begin(self, step: int) -> None:
        """Begin a step and end the one before."""
        self._end_step()
        if self._running and not self._first <= step <= self._last:
            self._running = False
            jax.profiler.stop_trace()
        if not self._running and self._first <= step <= self._last:
            jax.profiler.start_trace(str(self._folder))
            self._running = True
        if self._running:
            self._step = jax.profiler.StepTraceAnnotation("step", step_num=step)
            self._step.__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._end_step()
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
