"""How much work one verdict may take, counted in steps and never in seconds."""

STEPS = 15_000
"""A step takes one to four microseconds; an ordinary verdict takes hundreds."""


class Open(Exception):
    """Raised when the steps are spent: whether the answer is right stays open."""


class Budget:
    """Counts steps; the same work takes the same steps on every machine."""

    def __init__(self, steps: int = STEPS):
        self._left = steps

    def charge(self, steps: int) -> None:
        """Takes steps.

        Raises:
          Open: when there are none left.
        """
        self._left -= steps
        if self._left < 0:
            raise Open
