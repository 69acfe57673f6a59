"""Defines alarms, which check the metrics of each step and warn or end the run."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from configs import base

Metrics = Mapping[str, float]


class Alarm(RuntimeError):
    """Signals that an alarm ends the run; the message names the alarm."""


class Rule(NamedTuple):
    """Describes one alarm: a metric, its limit and the warning."""

    name: str  # the alarm's name in `alarms.stop_on`
    metrics: tuple[str, ...]  # the first of these that a step has is compared
    beyond: Callable[[float, float], bool]  # whether to warn for a value and the limit
    limit: float
    says: str  # format string of the value; {names}: first three non-finite metrics
    counts: bool = False  # whether the value counts consecutive steps or updates


# "reward/unmoved" and "not_finite" are computed by `Alarms.check`.
RULES = (
    Rule("truncated", ("sampling/truncated",), operator.gt, 0.9,
         "{:.0%} of the completions are truncated: raise"
         " config.rollout.max_response_tokens or the stage's max_response_tokens, or"
         " check config.rollout.stop_token_ids"),
    Rule("unjudged", ("sampling/unjudged",), operator.gt, 0.01,
         "{:.1%} of the completions have no verdict: see the metrics verifier/lost"
         " (workers died or timed out) and verifier/bad_gold, and whether the reward"
         " function returns None"),
    Rule("no_signal", ("sampling/informative",), operator.lt, 0.02,
         "only {:.1%} of the groups are informative: use problems that the policy"
         " solves sometimes, or check the reward function"),
    Rule("repeated", ("sampling/repeated",), operator.gt, 0.5,
         "{:.0%} of the completions are repetitive: read some in samples.jsonl"),
    Rule("entropy_low", ("policy/entropy",), operator.lt, 0.01,
         "entropy {:.4f} nats/token is too low: the policy has collapsed; try a"
         " lower config.schedule.learning_rate"),
    Rule("entropy_high", ("policy/entropy",), operator.gt, 5.0,
         "entropy {:.2f} nats/token is too high: the policy is close to random;"
         " try a lower config.schedule.learning_rate"),
    # The second metric is used if no token is from the current policy version.
    Rule("sampler_gap", ("policy/sampler_gap_mean", "off_policy/stale_gap"),
         operator.gt, 0.1,
         "log-probabilities of sampler and trainer differ by {:.4f} nats/token on"
         " average: the sampler has other weights, or computes less precisely"),
    Rule("stuck_reward", ("reward/unmoved",), operator.ge, 10.0,
         "the mean reward has not changed for {:.0f} steps: check the reward function",
         counts=True),
    Rule("skipped_updates", ("policy/skipped_in_a_row",),
         lambda value, limit: value > 0, 3.0,
         "skipped updates in a row: {:.0f}, because they were not finite; the run's"
         " first skipped step is in dumps/ of the workdir, if it could be written",
         counts=True),
    Rule("not_finite", ("not_finite",), operator.gt, 0.0,
         "metrics are not finite, such as {names}: see metrics.jsonl"),
)  # fmt: skip


class Alarms:
    """Checks the metrics of each step with `RULES`.

    An alarm warns in each step in which `Rule.beyond(value, limit)` is true. Alarms in
    `alarms.stop_on` also end the run: after warnings in `alarms.patience` steps in a
    row, or, if the value is a count (`Rule.counts`), when it reaches the limit.
    """

    def __init__(self, settings: base.Alarms):
        self.settings = settings
        self._in_a_row: dict[str, int] = {}
        self._reward: float | None = None
        self._unmoved = 0

    def check(self, metrics: Metrics) -> tuple[dict[str, str], str | None]:
        """Returns warnings by alarm name, and the reason to end the run or None."""
        not_finite = [name for name, x in metrics.items() if not math.isfinite(x)]
        names = ", ".join(not_finite[:3])
        unmoved = self._count_unmoved(metrics)
        found = {**metrics, "reward/unmoved": unmoved, "not_finite": len(not_finite)}
        patience = self.settings.patience
        warnings: dict[str, str] = {}
        reason = None
        for rule in RULES:
            value = next((found[n] for n in rule.metrics if n in found), math.nan)
            if not rule.beyond(value, rule.limit):
                self._in_a_row[rule.name] = 0
                continue
            row = self._in_a_row[rule.name] = self._in_a_row.get(rule.name, 0) + 1
            text = warnings[rule.name] = rule.says.format(value, names=names)
            over = value >= rule.limit if rule.counts else row >= patience
            if over and rule.name in self.settings.stop_on:
                steps = f"such steps in a row: config.alarms.patience={patience}"
                end = "" if rule.counts else f"; {steps}"
                reason = reason or f"{rule.name}: {text}{end}"
        return warnings, reason

    def _count_unmoved(self, metrics: Metrics) -> int:
        """Counts the steps with rewards since the mean reward last changed."""
        reward = metrics.get("reward/mean")
        if reward is not None:
            same = self._reward is not None and math.isclose(reward, self._reward)
            self._reward, self._unmoved = reward, self._unmoved + 1 if same else 0
        return self._unmoved

    def state(self) -> dict[str, Any]:
        return {
            "in_a_row": dict(self._in_a_row),
            "reward": self._reward,
            "unmoved": self._unmoved,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._in_a_row = dict(state["in_a_row"])
        self._reward, self._unmoved = state["reward"], state["unmoved"]
