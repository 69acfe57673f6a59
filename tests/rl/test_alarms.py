"""Runs that look healthy and are not."""

import dataclasses
import json

import pytest

from configs import base
from rl.alarms import RULES, Alarms

SETTINGS = base.Alarms(patience=3)


def _alarms(**changes):
    return Alarms(dataclasses.replace(SETTINGS, **changes))


# Each alarm's own metric, a value at which it holds, one at which it does not, and what
# it says.
NAN = float("nan")
FIGURES = [
    ("truncated", "sampling/truncated", 0.95, 0.5, "95% of the completions"),
    ("unjudged", "sampling/unjudged", 0.02, 0.009, "2.0% of the completions have no"),
    ("no_signal", "sampling/informative", 0.0, 0.1, "only 0.0% of the groups"),
    ("repeated", "sampling/repeated", 0.75, 0.25, "75% of the completions"),
    ("entropy_low", "policy/entropy", 0.001, 0.5, "entropy 0.0010 nats/token"),
    ("entropy_high", "policy/entropy", 7.0, 0.5, "entropy 7.00 nats/token"),
    ("sampler_gap", "policy/sampler_gap_mean", 0.3, 0.01,
     "log-probabilities of sampler and trainer differ by 0.3000 nats/token"),
    ("stuck_reward", "reward/mean", -1.0, None, "the mean reward has not changed for"),
    ("skipped_updates", "policy/skipped_in_a_row", 3.0, 0.0, "skipped updates in a"),
    ("not_finite", "policy/entropy", NAN, 0.5, "metrics are not finite, such as"),
]  # fmt: skip


def test_a_schedule_without_tokens_of_the_current_version_has_the_alarm_too():
    (said,) = _alarms().check({"off_policy/stale_gap": 3.0})[0].values()
    assert "sampler and trainer differ by 3.0000 nats/token" in said
    both = {"policy/sampler_gap_mean": 0.01, "off_policy/stale_gap": 3.0}
    assert _alarms().check(both) == ({}, None)


def test_every_alarm_is_held_to_its_figures():
    assert [name for name, *_ in FIGURES] == [rule.name for rule in RULES]


@pytest.mark.failure(4)
@pytest.mark.failure(27)
@pytest.mark.failure(28)
@pytest.mark.failure(38)
@pytest.mark.failure(41)
@pytest.mark.parametrize("name,metric,value,quiet,said", FIGURES)
def test_an_alarm_holds_by_its_own_figure_alone_and_does_what_it_is_told(
    name, metric, value, quiet, said
):
    assert _alarms().check({} if quiet is None else {metric: quiet}) == ({}, None)
    for stop_on in ((), (name,)):
        alarms = _alarms(stop_on=stop_on)
        checks = [alarms.check({metric: value}) for _ in range(12)]
        assert checks[-1][0].keys() == {name}
        reasons = [reason for _, reason in checks if reason]
        assert bool(reasons) == bool(stop_on)
        if stop_on:
            assert reasons[0].startswith(f"{name}: {said}")
            # Three steps in a row; three updates in a row are one step's already, and
            # what has not moved for ten steps was seen first a step before.
            steps = {"skipped_updates": 1, "stuck_reward": 11}.get(name, 3)
            assert len(reasons) == 13 - steps


@pytest.mark.failure(27)
def test_a_row_ends_where_the_alarm_does_and_is_part_of_the_state():
    alarms = _alarms()
    warnings, _ = alarms.check({"sampling/truncated": 0.95})
    assert "95% of the completions" in warnings["truncated"]
    assert alarms.check({"sampling/truncated": 0.5}) == ({}, None)
    for _ in range(2):
        assert alarms.check({"sampling/truncated": 1.0})[1] is None
    restored = _alarms()
    restored.restore(json.loads(json.dumps(alarms.state())))
    for each in (alarms, restored):
        _, due = each.check({"sampling/truncated": 1.0})
        end = "; such steps in a row: config.alarms.patience=3"
        assert due.endswith("stop_token_ids" + end)


@pytest.mark.failure(23)
def test_updates_that_are_not_finite_warn_at_once_and_end_the_run_after_a_few():
    alarms = _alarms()
    warnings, due = alarms.check({"policy/skipped_in_a_row": 1})
    skipped = "skipped updates in a row: 1, because they were not finite"
    assert warnings["skipped_updates"].startswith(skipped)
    assert len(warnings) == 1 and due is None
    _, due = alarms.check({"policy/skipped_in_a_row": 3})
    assert "skipped updates in a row: 3" in due


def test_a_reward_that_moves_at_all_is_not_stuck():
    alarms = _alarms()
    for reward in (*[-1.0] * 10, -0.999, -0.999, *[-1.0] * 9):
        assert alarms.check({"reward/mean": reward}) == ({}, None)
    assert alarms.check({}) == ({}, None)  # a step that drew nothing has no say
    assert alarms.check({"reward/mean": -1.0}) == ({}, None)
    (warning,) = alarms.check({"reward/mean": -1.0})[0].values()
    assert warning.startswith("the mean reward has not changed for 10 steps")
