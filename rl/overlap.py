"""When a step's completions are drawn: before its update, or during earlier ones.

`sync` samples and updates in turn. `one_step_off` samples the next step's batch while
this step's update runs, and publishes between the two, so that a batch is drawn by one
version, at most one behind. `async` samples on through updates and publishes, several
batches ahead; a completion that an update overtakes goes on under the new weights.
Whatever the schedule, every token knows the version that drew it.
"""

import collections
import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rl.collect import Tally
from rl.types import Group

SCHEDULES = ("sync", "one_step_off", "async")

Batch = tuple[list[Group], Tally]


@dataclasses.dataclass(frozen=True, slots=True)
class _Ahead:
    """A batch that is collected in the background, and the state before it was."""

    state: concurrent.futures.Future
    batch: concurrent.futures.Future


class Rollouts:
    """Hands out the batch of each step, and works ahead as far as it may.

    With a lag of L the batch of step s is begun when version s - L or newer is served.
    """

    def __init__(
        self,
        collect: Callable[[int], Batch],
        snapshot: Callable[[], dict[str, Any]],
        *,
        schedule: str,
        max_lag: int,
        steps: int,
    ):
        """
        Args:
          collect: the batch of a step; called for one step after the other.
          snapshot: what resuming needs to collect again from here.
          schedule: one of `SCHEDULES`.
          max_lag: under "async", versions that a batch may be begun ahead.
          steps: of the run; nothing is collected beyond.
        """
        if max_lag < 1:
            raise ValueError(f"rollout.max_lag={max_lag}: must be at least 1")
        self._collect, self._snapshot = collect, snapshot
        self._lag = {"sync": 0, "one_step_off": 1, "async": max_lag}[schedule]
        self._settles = schedule == "one_step_off"
        self._steps = steps
        self._ahead: collections.deque[_Ahead] = collections.deque()
        # One thread: a batch begins where the one before has left the data.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "rollouts")

    def take(self, step: int) -> Batch:
        """The batch of `step`, which is also the version served now.

        Raises:
          Whatever `collect` raised, in the background or not.
        """
        if not self._lag:
            return self._collect(step)
        self._begin(step, step)
        # It stays in line until it is there: a stop meanwhile resumes before it.
        batch = self._ahead[0].batch.result()
        self._ahead.popleft()
        self._begin(step + 1, min(step + self._lag, self._steps - 1))
        return batch

    def settle(self) -> None:
        """Call before a publish: waits where no completion may see two versions."""
        if self._settles:
            concurrent.futures.wait([ahead.batch for ahead in self._ahead])

    def state(self) -> dict[str, Any]:
        """What resuming needs to collect again all that was not yet taken."""
        return self._ahead[0].state.result() if self._ahead else self._snapshot()

    def close(self) -> None:
        """Drops what has not begun. What has ends with the sampler."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self, first: int, last: int) -> None:
        for step in range(first + len(self._ahead), last + 1):
            state: concurrent.futures.Future = concurrent.futures.Future()
            batch = self._thread.submit(self._run, step, state)
            self._ahead.append(_Ahead(state, batch))

    def _run(self, step: int, state: concurrent.futures.Future) -> Batch:
        state.set_result(self._snapshot())
        return self._collect(step)


def lag_metrics(groups: Sequence[Group], step: int) -> dict[str, float]:
    """How many versions behind `step` the tokens of a batch were drawn."""
    versions = [c.versions for group in groups for c in group.completions]
    lags = step - np.concatenate(versions)
    metrics = {
        "off_policy/lag_mean": float(lags.mean()),
        "off_policy/lag_max": float(lags.max()),
    }
    for lag, count in zip(*np.unique(lags, return_counts=True), strict=True):
        metrics[f"off_policy/tokens_lag_{lag}"] = float(count)
    return metrics
