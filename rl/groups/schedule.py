"""Decides when a step's completions are sampled: before its update, or earlier.

`sync` samples and updates in turn. `one_step_off` samples the next batch during this
step's update, by one version that is at most one behind. `async` samples several
batches ahead, through updates and publishes; a completion continues under new weights.
Every token records the version that sampled it.
"""

import collections
import concurrent.futures
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np

from configs.schema import Count
from rl.groups.collect import Collector
from rl.groups.stats import RolloutStats
from rl.types import Group

Schedule = Literal["sync", "one_step_off", "async"]


class Rollouts:
    """Returns the batch of each step, and works ahead as far as the schedule allows.

    With a staleness of L the batch of step s starts once version s - L is served.
    """

    def __init__(
        self,
        collector: Collector,
        *,
        schedule: Schedule,
        max_staleness: Count,
        steps: Count,
    ):
        """
        Args:
          collector: collects the batches, in the order of steps.
          schedule: see the module's docstring.
          max_staleness: under "async", versions that a batch may start ahead.
          steps: of the run; nothing is collected beyond.
        """
        self._collector = collector
        ahead = {"sync": 0, "one_step_off": 1, "async": max_staleness}
        self._staleness = ahead[schedule]
        self._waits = schedule == "one_step_off"
        self._steps = steps
        # Batches that are collected ahead, each with the state before it.
        self._ahead: collections.deque[tuple[Future, Future]] = collections.deque()
        # One thread: a batch continues where the previous one left the data.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "rollouts")

    def take(self, step: int) -> tuple[list[Group], RolloutStats]:
        """Return the groups of `step`, the version served now, and their stats.

        It raises whatever `Collector.collect` raised.
        """
        if not self._staleness:
            return self._collector.collect(step)
        self._begin(step, step)
        # Keep it queued until ready, so an interrupted run resumes before this batch.
        _, batch = self._ahead[0]
        groups, stats = batch.result()
        self._ahead.popleft()
        self._begin(step + 1, min(step + self._staleness, self._steps - 1))
        return groups, stats

    def wait(self) -> None:
        """Wait, before a publish, if no completion may see two versions."""
        if self._waits:
            concurrent.futures.wait([batch for _, batch in self._ahead])

    def state(self) -> dict[str, Any]:
        """Return the state before the first batch that was not taken."""
        if not self._ahead:
            return self._collector.state()
        state, _ = self._ahead[0]
        return state.result()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`; call it before the first `take`."""
        self._collector.restore(state)

    def close(self) -> None:
        """Drop batches that have not started; others end with the sampler."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self, first: int, last: int) -> None:
        for step in range(first + len(self._ahead), last + 1):
            state: Future = Future()
            batch = self._thread.submit(self._run, step, state)
            self._ahead.append((state, batch))

    def _run(self, step: int, state: Future) -> tuple[list[Group], RolloutStats]:
        state.set_result(self._collector.state())
        return self._collector.collect(step)


def staleness_metrics(groups: Sequence[Group], step: int) -> dict[str, float]:
    """Return how many versions behind `step` a batch's tokens were sampled."""
    versions = [c.versions for group in groups for c in group.completions]
    staleness = step - np.concatenate(versions)
    metrics = {
        "off_policy/staleness_mean": float(staleness.mean()),
        "off_policy/staleness_max": float(staleness.max()),
    }
    for behind, count in zip(*np.unique(staleness, return_counts=True), strict=True):
        metrics[f"off_policy/tokens_stale_{behind}"] = float(count)
    return metrics
