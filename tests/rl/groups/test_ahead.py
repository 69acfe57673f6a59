"""What each schedule draws when, what a stop loses, and what overlaps."""

import dataclasses
import threading

import numpy as np
import pytest

from configs.base import Rollout, RunConfig
from rl.groups.ahead import Ahead
from rl.groups.stats import RolloutStats, staleness_metrics
from tests.rl.examples import make_group


class Loop:
    """Notes every version; its updates end when all that may has begun."""

    def __init__(self, schedule, *, steps=6, max_staleness=2):
        self.version, self.drawn, self.count, self.steps = 0, [], 0, steps
        self.ahead = {"one_step_off": 1, "async": max_staleness}[schedule]
        self.begun = threading.Condition()
        rollout = Rollout(schedule=schedule, max_staleness=max_staleness)
        self.groups = Ahead(self, RunConfig(rollout=rollout, steps=steps))

    def state(self):
        return {"count": self.count}

    def restore(self, state):
        self.count = state["count"]

    def collect(self, step):
        began = self.version
        with self.begun:
            self.count += 1
            self.begun.notify_all()
        self.drawn.append((step, began, self.version))
        return [step], RolloutStats(RunConfig())

    def update(self, step):
        begun = min(step + self.ahead + 1, self.steps)
        with self.begun:
            assert self.begun.wait_for(lambda: self.count == begun, timeout=60)

    def run(self):
        for step in range(self.steps):
            groups, _ = self.groups.collect(step)
            assert groups == [step]
            self.update(step)
            self.groups.wait()
            self.version = step + 1


def test_one_step_off_draws_a_batch_with_one_version_at_most_one_behind():
    loop = Loop("one_step_off")
    loop.run()
    assert loop.drawn == [(0, 0, 0)] + [(s, s - 1, s - 1) for s in range(1, 6)]


@pytest.mark.parametrize("max_staleness", [1, 3])
def test_async_begins_no_batch_too_far_ahead(max_staleness):
    loop = Loop("async", steps=12, max_staleness=max_staleness)
    loop.run()
    lags = [(step, step - began) for step, began, _ in loop.drawn]
    assert lags == [(step, min(step, max_staleness)) for step in range(12)]


class Meeting(Loop):
    """Each update and the sampling of the next batch wait for each other."""

    def __init__(self, schedule, *, patience):
        self.meet = threading.Barrier(2, timeout=patience)
        super().__init__(schedule)

    def collect(self, step):
        if step > 0:
            self.meet.wait()
        return super().collect(step)

    def update(self, step):
        if step + 1 < self.steps:
            self.meet.wait()


def test_one_step_off_samples_the_next_batch_while_it_updates():
    Meeting("one_step_off", patience=60).run()


@pytest.mark.failure(30)
@pytest.mark.parametrize("schedule", ["one_step_off", "async"])
def test_the_state_is_that_before_the_first_batch_not_taken(schedule):
    loop = Loop(schedule)
    for step in range(4):
        loop.groups.collect(step)
        loop.update(step)
        loop.groups.wait()
        # Batches beyond are drawn already, and would be lost: they are drawn again.
        assert loop.count > step + 1
        assert loop.groups.state() == {"count": step + 1}
        loop.version = step + 1


class Broken(Exception):
    pass


def test_a_failure_in_the_background_ends_the_step_that_needs_the_batch():
    class Collector:
        state = dict

        def collect(self, step):
            if step == 2:
                raise Broken
            return [step], RolloutStats(RunConfig())

    rollout = Rollout(schedule="one_step_off")
    ahead = Ahead(Collector(), RunConfig(rollout=rollout, steps=5))
    ahead.collect(0)
    ahead.collect(1)
    ahead.wait()
    with pytest.raises(Broken):
        ahead.collect(2)
    # Where it stood before that batch can still be saved.
    assert ahead.state() == {}
    ahead.close()


def test_staleness_is_counted_by_token():
    group = make_group([True, False], lengths=[3, 1], version=4)
    first, second = group.completions
    first = dataclasses.replace(first, versions=np.array([3, 3, 4], np.int32))
    group = dataclasses.replace(group, completions=(first, second))
    counts = {"tokens_stale_0": 2.0, "tokens_stale_1": 2.0}
    expected = {"staleness_mean": 0.5, "staleness_max": 1.0} | counts
    found = staleness_metrics([group], 4)
    assert found == {f"off_policy/{name}": x for name, x in expected.items()}
