"""Counts the programs that XLA compiles: after the first steps there should be none."""

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class Compiles:
    """Counts programs made so far, whether compiled or read from a cache.

    Attributes:
      programs: how many.
    """

    def __init__(self):
        self.programs = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _EVENT:
            self.programs += 1
