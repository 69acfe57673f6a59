"""Samples the groups of later steps during the updates of a step.

* `rollout.schedule="one_step_off"` samples for the next step while the update of this
  step runs. Each call of `Collector.collect` samples from one policy version, at most
  one version old.
* `"async"` samples up to `max_staleness` steps ahead, also while policy versions are
  published. Completions in progress then continue with the new weights.

Every token records the policy version that sampled it. The schedule "sync", which
alternates sampling and updates, does not use this module.
"""

import collections
import concurrent.futures
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from configs.base import RunConfig
from rl.groups.collect import Collector
from rl.groups.stats import RolloutStats
from rl.types import Group


class Ahead:
    """Provides the methods of a `Collector`, which it runs ahead in a thread."""

    def __init__(self, collector: Collector, c: RunConfig):
        self._collector, self._steps = collector, c.steps
        self._waits = c.rollout.schedule == "one_step_off"
        self._staleness = 1 if self._waits else c.rollout.max_staleness
        # Steps sampled ahead: the collector's state before each, and its groups.
        self._ahead: collections.deque[tuple[Future, Future]] = collections.deque()
        # One thread, because each step continues from the state after the previous one.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "ahead")

    def collect(self, step: int) -> tuple[list[Group], RolloutStats]:
        """Waits for the groups of a step; returns the result of `Collector.collect`.

        `step` must equal the version of the sampler's weights.
        """
        self._begin(step, step)
        # Keep it queued until ready, so an interrupted run resumes before it.
        _, collected = self._ahead[0]
        groups, stats = collected.result()
        self._ahead.popleft()
        self._begin(step + 1, min(step + self._staleness, self._steps - 1))
        return groups, stats

    def wait(self) -> None:
        """Waits until the next step is sampled, if the schedule is `one_step_off`.

        Call it before weights are published, so that one version samples a whole step.
        """
        if self._waits:
            concurrent.futures.wait([collected for _, collected in self._ahead])

    def state(self) -> dict[str, Any]:
        """Returns the state before the step that `collect` returns next."""
        if not self._ahead:
            return self._collector.state()
        state, _ = self._ahead[0]
        return state.result()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._collector.restore(state)

    def close(self) -> None:
        """Cancels steps that have not started; does not wait for a running one."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self, first: int, last: int) -> None:
        for step in range(first + len(self._ahead), last + 1):
            state: Future = Future()
            collected = self._thread.submit(self._run, step, state)
            self._ahead.append((state, collected))

    def _run(self, step: int, state: Future) -> tuple[list[Group], RolloutStats]:
        state.set_result(self._collector.state())
        return self._collector.collect(step)
