"""Properties of the update's own terms: correction, weights, KL and entropy.

Every property is checked against a calculation of its own, token by token, with each
correction on completions of which some tokens are off-policy.
"""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from configs.base import RunConfig
from rl.groups.weights import Aggregation, weigh
from rl.setup import make_rejection
from rl.types import Batch, make_hyper
from rl.update.objective import KL_ESTIMATES, objective_from_config
from rl.update.rejection import TRUNCATE
from tools.objective.properties import TOLERANCE, Finding
from tools.objective.trial import SHORT, layout, token_numbers

_CAP = 2.0
# old_logprobs - sampler_logprobs of the off-policy tokens of each completion, on
# average: some lie within the cap and some do not.
_GAPS = (0.1, 1.2, -0.2, -1.1)
_AGGREGATIONS: tuple[Aggregation, ...] = ("token", "group", "sequence", "constant")
_WHY = {
    "rejected tokens": "a rejected token must be in no gradient, metric or mean",
    "whole completions": "`geometric` keeps or rejects all tokens of a completion",
    "divisor": "weights must average over the tokens that are left",
    "importance weights": "each term's off-policy tokens are weighed by"
    " min(exp(old - sampler), cap), or by 1 where others were rejected",
    "KL penalty": "its gradient must point from the policy to the reference",
    "entropy bonus": "its gradient must raise the entropy",
    "packing after rejection": "it depends on how completions are packed",
}


def correction_findings(c: RunConfig, corrections: Sequence[str]) -> list[Finding]:
    """Returns one finding per property, over all corrections.

    Args:
      c: its `objective` names the loss.
      corrections: each as `objective.correction`.
    """
    faults: dict[str, list[str]] = {name: [] for name in _WHY}
    for correction in corrections:
        for name, fault in _faults(c, correction):
            faults[name].append(f"{correction}: {fault}")
    return [
        Finding(
            name,
            not found,
            f"{'; '.join(found)}: {_WHY[name]}" if found else ", ".join(corrections),
        )
        for name, found in faults.items()
    ]


def _faults(c: RunConfig, correction: str) -> Iterator[tuple[str, str]]:
    """Yields the properties that do not hold with one correction."""
    (together,) = layout()
    tokens = _Tokens(together)
    (batch,), terms = tokens.corrected(c, correction, [together])
    numbers, inside = token_numbers(together), together.loss_mask
    kept = np.zeros(tokens.count, bool)
    kept[numbers[batch.loss_weights != 0]] = True
    plain, entropy = terms("plain"), terms("entropy")
    for name in ("policy", "entropy"):
        if count := np.count_nonzero(entropy.outside(name, kept)):
            yield "rejected tokens", f"{count} have a gradient by the {name}"
    if entropy.metrics["tokens"] != kept.sum():
        yield "rejected tokens", "metrics count them"
    if not plain.same(tokens.corrected(c, correction, [together], moved=~kept)[1]()):
        yield "rejected tokens", "their log-probabilities change the others' gradient"
    if correction == "geometric":
        partly = {int(o) for o in tokens.owner[kept]} & {
            int(o) for o in tokens.owner[~kept]
        }
        if partly:
            yield "whole completions", f"{len(partly)} are kept in part"
    for aggregation in _AGGREGATIONS:
        (weighed,), _ = tokens.corrected(c, correction, [together], aggregation)
        found = np.zeros(tokens.count)
        found[numbers[inside]] = weighed.loss_weights[inside]
        constant = c.rollout.max_response_tokens
        expected = tokens.divided(kept, aggregation, constant)
        if not np.allclose(found, expected, rtol=1e-5, atol=0):
            yield (
                "divisor",
                f"{aggregation} sums to {found.sum():.4g}, not"
                + (f" {expected.sum():.4g}"),
            )
    expected = np.ones(tokens.count)
    if correction == TRUNCATE:
        bounded = np.minimum(np.exp(tokens.values["gap"]), _CAP)
        expected = np.where(tokens.off_policy, bounded, 1)
    for name, of_name in {
        "loss": plain.parts,
        "entropy": entropy.parts - plain.parts,
        **{k: terms(k).parts - plain.parts for k in KL_ESTIMATES},
    }.items():
        fresh = terms("plain", False).parts
        if name != "loss":
            fresh = terms(name, False).parts - fresh
        wrong = np.abs(of_name - expected * fresh)[kept].max(initial=0.0)
        if wrong > TOLERANCE:
            yield "importance weights", f"wrong in the {name}, by {wrong:.1e}"
    x = (tokens.values["policy"] - tokens.values["reference"])[kept]
    for estimate in KL_ESTIMATES:
        slope = (terms(estimate).policy - plain.policy)[kept]
        if wrong := np.count_nonzero(np.sign(slope) != np.sign(x)):
            yield "KL penalty", f"{estimate} has the wrong sign at {wrong} tokens"
    if wrong := np.count_nonzero(entropy.entropy[kept] >= 0):
        yield "entropy bonus", f"lowers the entropy of {wrong} tokens"
    short = layout(length=SHORT, rows=4)
    if not plain.same(tokens.corrected(c, correction, short)[1]()):
        yield "packing after rejection", "the gradient differs between two packings"


@dataclasses.dataclass(frozen=True)
class _Terms:
    """Values by token of one objective.

    Attributes:
      policy, entropy: gradients by the policy's log-probability and entropy.
      everywhere: the same gradients at every position, by name.
      parts: what the token adds to the loss, divided by its weight in the mean.
      metrics: sums over tokens.
    """

    policy: np.ndarray
    entropy: np.ndarray
    everywhere: dict[str, tuple[np.ndarray, np.ndarray]]
    parts: np.ndarray
    metrics: dict[str, float]

    def outside(self, name: str, kept: np.ndarray) -> np.ndarray:
        """Returns the gradient at positions that hold no kept token."""
        slope, number = self.everywhere[name]
        return slope[(number < 0) | ~kept[number]]

    def same(self, other: "_Terms") -> bool:
        return bool(np.abs(self.policy - other.policy).max() <= TOLERANCE)


class _Tokens:
    """Values of every completion's tokens, some of them off-policy."""

    def __init__(self, batch: Batch):
        rng = np.random.default_rng(2)
        numbers = token_numbers(batch)[batch.loss_mask]
        self.count = len(numbers)
        owner = np.empty(self.count, int)
        group = np.empty(self.count, int)
        row = np.nonzero(batch.loss_mask)[0]
        owner[numbers] = (
            row * batch.loss_mask.shape[1] + batch.segment_ids[batch.loss_mask]
        )
        group[numbers] = batch.group_ids[batch.loss_mask]
        self.owner, self.group = np.unique(owner, return_inverse=True)[1], group
        self.off_policy = rng.random(self.count) < 0.7
        gap = np.take(_GAPS, self.owner % len(_GAPS)) + rng.normal(0, 0.5, self.count)
        gap = np.where(self.off_policy, gap, 0.0)
        old = rng.normal(-2, 0.5, self.count)
        policy = old + rng.normal(0, 0.02, self.count)
        self.values = {
            "policy": policy,
            "old": old,
            "gap": gap,
            "sampler": old - gap,
            "reference": policy + rng.normal(0, 0.3, self.count),
            "entropy": rng.uniform(0.5, 2, self.count),
        }

    def corrected(
        self,
        c: RunConfig,
        correction: str,
        batches: Sequence[Batch],
        aggregation: Aggregation = "sequence",
        *,
        moved: np.ndarray | None = None,
    ):
        """Rejects tokens as the run does.

        Args:
          c, correction: of the run.
          batches: micro-batches of `layout`.
          aggregation: as `objective.aggregation`.
          moved: tokens whose values change after the rejection.

        Returns:
          The micro-batches, and a function from a term's name to its `_Terms`.
        """
        objective = dataclasses.replace(
            c.objective,
            correction=correction,
            correction_cap=_CAP,
            aggregation=aggregation,
        )
        c = dataclasses.replace(c, objective=objective)
        numbers = [np.where(b.loss_mask, token_numbers(b), -1) for b in batches]
        values = self.values
        weighed = weigh(
            batches, aggregation=aggregation, constant=c.rollout.max_response_tokens
        )
        placed = [
            self._placed(b, n, values) for b, n in zip(weighed, numbers, strict=True)
        ]
        reject = make_rejection(c)
        kept = placed if reject is None else reject(placed)
        if moved is not None:
            values = {k: v + np.where(moved, 0.4, 0) for k, v in values.items()}
            again = [
                self._placed(b, n, values) for b, n in zip(kept, numbers, strict=True)
            ]
            kept = [
                b.replace(off_policy=k.off_policy)
                for b, k in zip(again, kept, strict=True)
            ]

        @functools.cache
        def terms(name: str = "plain", off_policy: bool = True) -> _Terms:
            extra: dict[str, Any] = {}
            if name == "entropy":
                extra = {"entropy_bonus": 0.1}
            elif name in KL_ESTIMATES:
                extra = {"kl_penalty": 0.1, "kl_estimate": name}
            chosen = dataclasses.replace(objective, **extra)
            loss = objective_from_config(dataclasses.replace(c, objective=chosen)).loss
            return self._terms(loss, kept, numbers, values, off_policy)

        return kept, terms

    def divided(
        self, kept: np.ndarray, aggregation: Aggregation, constant: int
    ) -> np.ndarray:
        """Returns each token's weight in the mean, counted by hand."""
        in_group = collections.Counter(self.group[kept].tolist())
        in_completion = collections.Counter(self.owner[kept].tolist())
        weights = np.zeros(self.count)
        for t in np.flatnonzero(kept):
            weights[t] = {
                "token": lambda t: 1 / kept.sum(),
                "group": lambda t: 1 / (len(in_group) * in_group[self.group[t]]),
                "sequence": lambda t: (
                    1 / (len(in_completion) * in_completion[self.owner[t]])
                ),
                "constant": lambda t: 1 / (len(in_completion) * constant),
            }[aggregation](t)
        return weights

    def _placed(self, batch: Batch, numbers: np.ndarray, values) -> Batch:
        def at(name):
            return np.where(numbers >= 0, values[name][numbers], 0.0)

        return batch.replace(
            old_logprobs=at("old"),
            sampler_logprobs=at("sampler"),
            reference_logprobs=at("reference"),
            off_policy=(numbers >= 0) & self.off_policy[numbers],
            advantages=batch.advantages.astype(float),
        )

    def _terms(self, loss, batches, numbers, values, off_policy: bool) -> _Terms:
        hyper = make_hyper(
            learning_rate=1,
            eps_low=0.2,
            eps_high=0.28,
            temperature=1.0,
            first_update=False,
        )
        policy, entropy, parts = (np.zeros(self.count) for _ in range(3))
        everywhere: dict[str, list] = {"policy": [], "entropy": []}
        metrics: collections.Counter = collections.Counter()
        for batch, number in zip(batches, numbers, strict=True):
            if not off_policy:
                batch = batch.replace(off_policy=np.zeros_like(batch.off_policy))
            weights = np.asarray(batch.loss_weights, float)
            at = [
                np.where(number >= 0, values[name][number], 0.0)
                for name in ("policy", "entropy")
            ]

            def of(policy, entropy, weights, batch=batch):
                return loss(policy, entropy, batch.replace(loss_weights=weights), hyper)

            slopes, stats = jax.grad(of, (0, 1, 2), has_aux=True)(*at, weights)
            inside = number >= 0
            for total, slope in zip((policy, entropy, parts), slopes, strict=True):
                total[number[inside]] += np.asarray(slope)[inside]
            for name, slope in zip(everywhere, slopes, strict=False):
                everywhere[name].append((np.asarray(slope).ravel(), number.ravel()))
            metrics.update({k: float(v) for k, v in stats["sum"].items()})
        joined = {
            name: (
                np.concatenate([v for v, _ in rows]),
                np.concatenate([n for _, n in rows]),
            )
            for name, rows in everywhere.items()
        }
        return _Terms(policy, entropy, joined, parts, dict(metrics))
