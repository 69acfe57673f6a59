"""Runs that look healthy and are not."""

import dataclasses
import json

import pytest

from configs import base
from rl.alarms import RULES, Alarms

SETTINGS = base.Alarms(patience=3)


def _alarms(**changes):
    return Alarms(dataclasses.replace(SETTINGS, **changes))


# Each alarm's own figures: one at which it holds, one at which it does not.
FIGURES = {
    "truncated": [{"sampling/truncated": 0.95}, {"sampling/truncated": 0.5}],
    # Whatever the verifier has judged meanwhile, of other steps and in evaluation.
    "unjudged": [
        {"sampling/unjudged": 0.02, "verifier/judged": 9e6},
        {"sampling/unjudged": 0.009, "verifier/judged": 1.0},
    ],
    "no_signal": [{"sampling/informative": 0.0}, {"sampling/informative": 0.1}],
    "repeated": [{"sampling/repeated": 0.75}, {"sampling/repeated": 0.25}],
    "entropy_low": [{"policy/entropy": 0.001}, {"policy/entropy": 0.5}],
    "entropy_high": [{"policy/entropy": 7.0}, {"policy/entropy": 0.5}],
    "sampler_gap": [
        {"policy/sampler_gap_mean": 0.3},
        {"policy/sampler_gap_mean": 0.01, "off_policy/stale_gap": 3.0},
    ],
    "stuck_reward": [{"reward/mean": -1.0}, {}],
    "skipped_updates": [
        {"policy/skipped_in_a_row": 3.0},
        {"policy/skipped_in_a_row": 0.0},
    ],
    "not_finite": [{"policy/loss": float("nan")}, {"policy/loss": 0.1}],
}


def test_a_schedule_without_tokens_of_the_current_version_has_the_alarm_too():
    (said,) = _alarms().check({"off_policy/stale_gap": 3.0})[0].values()
    assert "sampler and trainer differ by 3.0000 nats/token" in said


def test_every_alarm_is_held_to_its_figures():
    assert list(FIGURES) == [rule.name for rule in RULES]


@pytest.mark.failure(27)
@pytest.mark.failure(28)
@pytest.mark.parametrize("name", FIGURES)
def test_an_alarm_holds_by_its_own_figure_alone_and_does_what_it_is_told(name):
    holds, quiet = FIGURES[name]
    assert _alarms().check(quiet) == ({}, None)
    for action in ("warn", "stop"):
        stop_on = (name,) if action == "stop" else ()
        alarms = _alarms(stop_on=stop_on)
        steps = 1
        warnings, due = alarms.check(holds)
        while due is None and steps < 12:
            warnings, due = alarms.check(holds)
            steps += 1
        assert len(warnings) == 1
        if action == "warn":
            assert due is None
        else:
            assert due.startswith(f"{name}: ")
            # Three steps in a row; three updates in a row are one step's already, and
            # what has not moved for ten steps was seen first a step before.
            assert steps == {"skipped_updates": 1, "stuck_reward": 11}.get(name, 3)


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


@pytest.mark.failure(4)
def test_a_gap_between_sampler_and_trainer_warns():
    warnings, _ = _alarms().check({"policy/sampler_gap_mean": 0.3})
    assert "0.3000 nats" in warnings["sampler_gap"]


@pytest.mark.failure(23)
def test_updates_that_are_not_finite_warn_at_once_and_end_the_run_after_a_few():
    alarms = _alarms()
    warnings, due = alarms.check({"policy/skipped_in_a_row": 1})
    skipped = "skipped updates in a row: 1, because they were not finite"
    assert warnings["skipped_updates"].startswith(skipped)
    assert len(warnings) == 1 and due is None
    _, due = alarms.check({"policy/skipped_in_a_row": 3})
    assert "skipped updates in a row: 3" in due


@pytest.mark.failure(38)
def test_a_figure_that_is_no_number_is_not_taken_for_a_healthy_one():
    figures = {"policy/entropy": float("nan"), "policy/sampler_gap_mean": float("inf")}
    warnings, _ = _alarms().check(figures)
    named = "not finite, such as policy/entropy, policy/sampler_gap_mean: see"
    assert named in warnings["not_finite"]


@pytest.mark.failure(41)
def test_completions_without_a_verdict_warn():
    (warning,) = _alarms().check(FIGURES["unjudged"][0])[0].values()
    assert warning.startswith("2.0% of the completions have no verdict")


def test_a_reward_that_moves_at_all_is_not_stuck():
    alarms = _alarms()
    for reward in (*[-1.0] * 10, -0.999, -0.999, *[-1.0] * 9):
        assert alarms.check({"reward/mean": reward}) == ({}, None)
    assert alarms.check({}) == ({}, None)  # a step that drew nothing has no say
    assert alarms.check({"reward/mean": -1.0}) == ({}, None)
    (warning,) = alarms.check({"reward/mean": -1.0})[0].values()
    assert warning.startswith("the mean reward has not changed for 10 steps")
