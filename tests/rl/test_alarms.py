"""Runs that look healthy and are not."""

import pytest

from rl.alarms import Alarm, Alarms

LIMITS = dict(
    truncated=0.9,
    entropy_low=0.01,
    entropy_high=5.0,
    sampler_gap=0.1,
    patience=3,
    skipped_updates=2,
)


@pytest.mark.failure(27)
def test_truncation_warns_at_once_and_ends_the_run_after_its_patience():
    alarms = Alarms(**LIMITS)
    assert "95% of the completions" in alarms.check({"sampling/truncated": 0.95})[0]
    assert alarms.check({"sampling/truncated": 0.5}) == []
    for _ in range(2):
        assert alarms.check({"sampling/truncated": 1.0})
    restored = Alarms(**LIMITS)
    restored.restore(alarms.state())
    for each in (alarms, restored):
        with pytest.raises(Alarm, match="truncated for 3 steps in a row"):
            each.check({"sampling/truncated": 1.0})


@pytest.mark.failure(28)
@pytest.mark.parametrize(
    "entropy,message", [(0.001, "collapsed"), (7.0, "dissolves"), (0.5, None)]
)
def test_entropy_warns_in_both_directions(entropy, message):
    warnings = Alarms(**LIMITS).check({"policy/entropy": entropy})
    assert (message in warnings[0]) if message else not warnings


@pytest.mark.failure(4)
def test_a_gap_between_sampler_and_trainer_warns():
    warnings = Alarms(**LIMITS).check({"policy/sampler_gap_mean": 0.3})
    assert "0.3000 nats" in warnings[0]


@pytest.mark.failure(23)
def test_updates_without_a_finite_gradient_are_fatal_after_a_few():
    alarms = Alarms(**LIMITS)
    assert "1 updates skipped" in alarms.check({"policy/skipped_in_a_row": 1})[0]
    with pytest.raises(Alarm, match="2 updates in a row had no finite gradient"):
        alarms.check({"policy/skipped_in_a_row": 2})
