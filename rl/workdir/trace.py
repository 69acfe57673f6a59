"""A trace of some steps: what the devices did, and the phases of the loop by name."""

import pathlib
from collections.abc import Sequence
from typing import Self

import jax


class Trace:
    """Writes `WORKDIR/profile`, of this process, for TensorBoard, XProf or Perfetto.

    A step lasts until the next one begins: what comes after it, such as an evaluation,
    is in its trace as well.
    """

    def __init__(self, workdir: pathlib.Path, *, steps: Sequence[int]):
        """
        Args:
          workdir: of the run.
          steps: the first and the last that are traced, as the console counts them;
            empty for none.

        Raises:
          ValueError: they are no such pair.
        """
        check_steps(steps=steps)
        self._first, self._last = steps or (0, 0)
        self._folder = workdir / "profile"
        self._running = False
        self._step: jax.profiler.StepTraceAnnotation | None = None

    def begin(self, step: int) -> None:
        """A step begins, and with it ends the one before."""
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


def check_steps(*, steps: Sequence[int]) -> None:
    """Refuses what is no first and last step.

    Raises:
      ValueError: names the key and the value.
    """
    pair = tuple(steps)
    whole = all(isinstance(step, int) for step in pair)
    if pair and not (whole and len(pair) == 2 and 1 <= pair[0] <= pair[1]):
        raise ValueError(
            f"config.profile.steps={pair}: must be the first and the last step, from 1,"
            " or empty"
        )
