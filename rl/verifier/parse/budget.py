"""Bounds the work of a verdict, counted in steps and not in seconds."""

STEPS = 15_000
"""Default limit; a step takes 1 to 4 µs, and most verdicts take hundreds of steps."""


class Open(Exception):
    """Signals that the budget or another limit is exhausted: equality is undecided."""


class Budget:
    """Counts steps; the same work takes the same number of steps on every machine."""

    def __init__(self, steps: int = STEPS):
        self._left = steps

    def charge(self, steps: int) -> None:
        """Subtracts steps; raises `Open` if fewer are left."""
        self._left -= steps
        if self._left < 0:
            raise Open
