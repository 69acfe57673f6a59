"""What each schedule draws when, what a stop loses, and what overlap gains."""

import threading
import time

import numpy as np
import pytest

from rl.collect import Tally
from rl.overlap import Rollouts, lag_metrics
from rl.types import Group, Problem
from rollout.types import Completion


class Loop:
    """A loop whose sampling and updates take given times; notes every version."""

    def __init__(self, schedule, *, sample=0.0, update=0.0, steps=6, max_lag=2):
        self.version, self.drawn, self.count = 0, [], 0
        self.sample, self.update_seconds = sample, update
        self.publishing = threading.Event()
        self.steps = steps
        self.rollouts = Rollouts(
            self.collect,
            lambda: {"count": self.count},
            schedule=schedule,
            max_lag=max_lag,
            steps=steps,
        )

    def collect(self, step):
        self.count += 1
        began = self.version
        time.sleep(self.sample)
        self.drawn.append((step, began, self.version))
        return [step], Tally()

    def run(self):
        began = time.perf_counter()
        for step in range(self.steps):
            groups, _ = self.rollouts.take(step)
            assert groups == [step]
            time.sleep(self.update_seconds)
            self.rollouts.settle()
            self.version = step + 1
        return (time.perf_counter() - began) / self.steps


def test_sync_draws_each_batch_with_its_own_version():
    loop = Loop("sync")
    loop.run()
    assert loop.drawn == [(s, s, s) for s in range(6)]


def test_one_step_off_draws_a_batch_with_one_version_at_most_one_behind():
    loop = Loop("one_step_off", sample=0.02, update=0.005)
    loop.run()
    assert loop.drawn == [(0, 0, 0)] + [(s, s - 1, s - 1) for s in range(1, 6)]


@pytest.mark.parametrize("max_lag", [1, 3])
def test_async_begins_no_batch_too_far_ahead(max_lag):
    loop = Loop("async", sample=0.001, update=0.01, steps=12, max_lag=max_lag)
    loop.run()
    assert [step for step, *_ in loop.drawn] == list(range(12))
    lags = [step - began for step, began, _ in loop.drawn]
    assert max(lags) == max_lag


def test_one_step_off_hides_the_shorter_of_sampling_and_update():
    times = dict(sample=0.1, update=0.1, steps=10)
    sync, off = Loop("sync", **times).run(), Loop("one_step_off", **times).run()
    assert sync > 0.195
    # The first batch has nothing to hide behind: a tenth of ten steps.
    assert off <= 1.15 * 0.1 + 0.1 / 10


@pytest.mark.failure(30)
@pytest.mark.parametrize("schedule", ["one_step_off", "async"])
def test_the_state_is_that_before_the_first_batch_not_taken(schedule):
    loop = Loop(schedule, sample=0.01, update=0.03)
    for step in range(4):
        loop.rollouts.take(step)
        time.sleep(loop.update_seconds)
        loop.rollouts.settle()
        # Batches beyond are drawn already, and would be lost: they are drawn again.
        assert loop.count > step + 1
        assert loop.rollouts.state() == {"count": step + 1}
        loop.version = step + 1


class Broken(Exception):
    pass


def test_a_failure_in_the_background_ends_the_step_that_needs_the_batch():
    def collect(step):
        if step == 2:
            raise Broken
        return [step], Tally()

    rollouts = Rollouts(collect, dict, schedule="one_step_off", max_lag=1, steps=5)
    rollouts.take(0)
    rollouts.take(1)
    rollouts.settle()
    with pytest.raises(Broken):
        rollouts.take(2)
    # Where it stood before that batch can still be saved.
    assert rollouts.state() == {}
    rollouts.close()


def test_lag_is_counted_by_token():
    def completion(versions):
        n = len(versions)
        zeros = np.zeros(n, np.float32)
        return Completion(
            zeros.astype(np.int32), zeros, "stop", np.array(versions, np.int32)
        )

    group = Group(
        problem=Problem(id="p", problem="", answers=("",)),
        prompt_ids=np.zeros(1, np.int32),
        completions=(completion([3, 3, 4]), completion([4])),
        correct=np.array([True, False]),
        rewards=np.array([1.0, -1.0], np.float32),
        born=4,
    )
    assert lag_metrics([group], 4) == {
        "off_policy/lag_mean": 0.5,
        "off_policy/lag_max": 1.0,
        "off_policy/tokens_lag_0": 2.0,
        "off_policy/tokens_lag_1": 2.0,
    }
