"""Counts compiled programs, since a recompilation slows a step down."""

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class Compiles:
    """Counts the programs that JAX compiles or reads from its compilation cache.

    Attributes:
      programs: number of programs since the creation of this object.
    """

    def __init__(self):
        self.programs = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _EVENT:
            self.programs += 1
