"""Runs that look healthy and are not: warned of at once, ended before they cost."""

import math
from collections.abc import Mapping
from typing import Any


class Alarm(RuntimeError):
    """A run that has stopped learning is ended."""


class Alarms:
    """Watches each step's metrics.

    A condition is reported every time that it holds; after `patience` steps in a row
    the fatal ones end the run.
    """

    def __init__(
        self,
        *,
        truncated: float,
        entropy_low: float,
        entropy_high: float,
        sampler_gap: float,
        patience: int,
        skipped_updates: int,
    ):
        """
        Args:
          truncated: share of truncated completions above which nothing is learned.
          entropy_low, entropy_high: nats per token; outside, the policy has collapsed
            or dissolved (reported only).
          sampler_gap: mean |sampler - trainer log-prob| above which the two no longer
            run one policy (reported only).
          patience: steps in a row of a fatal condition.
          skipped_updates: in a row, for gradients that are not finite.
        """
        self._truncated, self._sampler_gap = truncated, sampler_gap
        self._entropy_low, self._entropy_high = entropy_low, entropy_high
        self._patience, self._skipped = patience, skipped_updates
        self._in_a_row: dict[str, int] = {}

    def check(self, metrics: Mapping[str, float]) -> list[str]:
        """Warnings about this step.

        Raises:
          Alarm: a fatal condition has held for too long.
        """
        warnings = []
        truncated = metrics.get("sampling/truncated", 0.0)
        if self._holds("truncated", truncated > self._truncated):
            warnings.append(
                f"{truncated:.0%} of the completions are truncated: raise"
                " rollout.max_response_tokens or check the stop tokens"
            )
        entropy = metrics.get("policy/entropy", math.nan)
        if entropy < self._entropy_low:
            warnings.append(f"entropy {entropy:.4f} nats: the policy has collapsed")
        if entropy > self._entropy_high:
            warnings.append(f"entropy {entropy:.2f} nats: the policy dissolves")
        gap = metrics.get("policy/sampler_gap_mean", 0.0)
        if gap > self._sampler_gap:
            warnings.append(
                f"sampler and trainer differ by {gap:.4f} nats per token on average"
            )
        for name, count in self._in_a_row.items():
            if count >= self._patience:
                raise Alarm(f"{name} for {count} steps in a row; {warnings[0]}")
        skipped = metrics.get("policy/skipped_in_a_row", 0)
        if skipped:
            warnings.append(f"{skipped:.0f} updates skipped: no finite gradient")
        if skipped >= self._skipped:
            raise Alarm(f"{skipped:.0f} updates in a row had no finite gradient")
        return warnings

    def _holds(self, name: str, condition: bool) -> bool:
        self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if condition else 0
        return condition

    def state(self) -> dict[str, Any]:
        return dict(self._in_a_row)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._in_a_row = dict(state)
