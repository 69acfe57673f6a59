"""Schedules sampling: between updates, or ahead of them.

* `sync` alternates sampling and updates.
* `one_step_off` samples for the next step while the update of this step runs. Each call
  of `Collector.collect` samples from one policy version, at most one version old.
* `async` samples up to `max_staleness` steps ahead, also while policy versions are
  published. Completions in progress then continue with the new weights.

Every token records the policy version that sampled it.
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
    """Provides the groups of each step, and samples ahead if the schedule allows it."""

    def __init__(
        self,
        collector: Collector,
        *,
        schedule: Schedule,
        max_staleness: Count,
        steps: Count,
    ):
        self._collector = collector
        ahead = {"sync": 0, "one_step_off": 1, "async": max_staleness}
        self._staleness = ahead[schedule]
        self._waits = schedule == "one_step_off"
        self._steps = steps
        # Steps sampled ahead: the collector's state before each, and its groups.
        self._ahead: collections.deque[tuple[Future, Future]] = collections.deque()
        # One thread, because each step continues from the state after the previous one.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "rollouts")

    def take(self, step: int) -> tuple[list[Group], RolloutStats]:
        """Waits for the groups of a step; returns the result of `Collector.collect`.

        `step` must equal the version of the sampler's weights.
        """
        if not self._staleness:
            return self._collector.collect(step)
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
        """Returns the collector's state before the step that `take` returns next."""
        if not self._ahead:
            return self._collector.state()
        state, _ = self._ahead[0]
        return state.result()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state()`; call it before the first `take`."""
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


def staleness_metrics(groups: Sequence[Group], step: int) -> dict[str, float]:
    """Returns the mean and maximum age of tokens, and the number of tokens by age.

    The age of a token is `step` minus the policy version that sampled it.
    """
    versions = [c.versions for group in groups for c in group.completions]
    staleness = step - np.concatenate(versions)
    metrics = {
        "off_policy/staleness_mean": float(staleness.mean()),
        "off_policy/staleness_max": float(staleness.max()),
    }
    for behind, count in zip(*np.unique(staleness, return_counts=True), strict=True):
        metrics[f"off_policy/tokens_stale_{behind}"] = float(count)
    return metrics
