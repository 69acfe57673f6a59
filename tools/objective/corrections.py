"""Checks what the update adds to a loss: rejection, weights, KL and entropy terms."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np

from configs.base import RunConfig
from rl.groups.packing import Aggregation, weigh
from rl.types import Batch
from rl.update.objective import KL_ESTIMATES, TRUNCATE, objective_from_config
from rl.update.rejection import make_rejection
from tools.objective import trial
from tools.objective.properties import TOLERANCE, Finding
from tools.objective.trial import GROUP, OWNER, SHORT, Trial, Values, layout

_CAP = 2.0  # config.objective.correction_cap
# Means of old_logprobs - sampler_logprobs of off-policy tokens, by completion; some
# ratios exceed the cap.
_GAPS = (0.1, 1.2, -0.2, -1.1)
# For each term of the loss, the keys of config.objective that enable it.
_TERMS: dict[str, dict[str, Any]] = {
    "loss": {},
    "entropy": {"entropy_bonus": 0.1},
    **{name: {"kl_penalty": 0.1, "kl_estimate": name} for name in KL_ESTIMATES},
}
_WHY = {
    "rejected tokens": "gradients, metrics and means must not include those tokens",
    "whole completions": "`geometric` must keep or reject all tokens of a completion",
    "divisor": "weights must divide by the number of tokens that are not rejected",
    "importance weights": "every term must weight off-policy tokens by"
    " min(exp(old - sampler), cap) with `truncate`, and by 1 with other corrections",
    "KL penalty": "gradient descent must move the policy towards the reference",
    "entropy bonus": "gradient descent must raise the entropy",
    "packing after rejection": "the gradient must not depend on the packing",
}


def correction_findings(c: RunConfig, corrections: Sequence[str]) -> list[Finding]:
    """Checks the loss of `c` with each correction; returns one finding per property.

    The property "whole completions" is checked only for the correction "geometric".
    """
    faults = [(each, fault) for each in corrections for fault in _faults(c, each)]
    findings = []
    for name, why in _WHY.items():
        found = [f"{each}: {text}" for each, (of, text) in faults if of == name]
        checked = corrections
        if name == "whole completions":
            checked = [each for each in corrections if each == "geometric"]
        message = f"{'; '.join(found)}: {why}" if found else ", ".join(checked)
        findings += [Finding(name, not found, message)] if checked else []
    return findings


def _faults(c: RunConfig, correction: str) -> Iterator[tuple[str, str]]:
    """Yields (property, what is wrong) for each fault."""
    values = _make_values()

    def changed(**settings: Any) -> RunConfig:
        settings = {"aggregation": "sequence", "correction_cap": _CAP, **settings}
        objective = dataclasses.replace(c.objective, correction=correction, **settings)
        return dataclasses.replace(c, objective=objective)

    trials = {
        term: Trial(objective_from_config(changed(**keys)))
        for term, keys in _TERMS.items()
    }
    batches = _rejected(changed(), layout(), values)
    kept = _weights(batches) != 0
    found = {term: each.run(batches, values) for term, each in trials.items()}
    plain, entropy = found["loss"], found["entropy"]

    if count := entropy["outside"]:
        yield "rejected tokens", f"gradients not 0 where weights are 0: {count}"
    if (counted := entropy["metric tokens"]) != kept.sum():
        yield "rejected tokens", f"metrics count {counted:g} tokens, not {kept.sum()}"
    moved = {k: v + 0.4 * ~kept for k, v in values.items() if k != "off_policy"}
    again = trials["loss"].run(batches, {**values, **moved})
    if _differs(plain, again, kept):
        yield "rejected tokens", "their values change the gradient of other tokens"
    partly = {*OWNER[kept].tolist()} & {*OWNER[~kept].tolist()}
    if correction == "geometric" and partly:
        yield "whole completions", f"rejected in part: {len(partly)}"

    for aggregation in get_args(Aggregation):
        weighed = _rejected(changed(aggregation=aggregation), layout(), values)
        weights = _weights(weighed)
        exact = _exact(kept, aggregation, c.rollout.max_response_tokens)
        if not np.allclose(weights, exact, rtol=1e-5, atol=0):
            sums = f"sum {weights.sum():.4g}, expected {exact.sum():.4g}"
            yield "divisor", f"aggregation {aggregation!r} has wrong weights ({sums})"

    importance = np.ones(len(OWNER))
    if correction == TRUNCATE:
        bounded = np.minimum(np.exp(values["old"] - values["sampler"]), _CAP)
        importance = np.where(values["off_policy"], bounded, 1)
    fresh = {**values, "off_policy": np.zeros(len(OWNER), bool)}
    unweighed = {
        term: each.run(batches, fresh)["part"] for term, each in trials.items()
    }
    for term, exact in unweighed.items():
        part = found[term]["part"]
        if term != "loss":
            part, exact = part - plain["part"], exact - unweighed["loss"]
        wrong = np.abs(part - importance * exact)[kept].max(initial=0.0)
        if wrong > TOLERANCE:
            yield "importance weights", f"term {term!r} is off by up to {wrong:.1e}"

    x = (values["policy"] - values["reference"])[kept]
    for estimate in KL_ESTIMATES:
        slope = (found[estimate]["policy"] - plain["policy"])[kept]
        if wrong := np.count_nonzero(np.sign(slope) != np.sign(x)):
            fault = f"{estimate} has gradients of wrong sign, tokens: {wrong}"
            yield "KL penalty", fault
    if wrong := np.count_nonzero(entropy["entropy"][kept] >= 0):
        yield "entropy bonus", f"tokens whose entropy is not raised: {wrong}"
    short = _rejected(changed(), layout(length=SHORT), values)
    if _differs(plain, trials["loss"].run(short, values), kept):
        yield "packing after rejection", "the gradient differs between two packings"


def _weights(batches: Sequence[Batch]) -> np.ndarray:
    """Returns the loss weight of each completion token, `[tokens]`."""
    weights = np.zeros(len(OWNER))
    for batch in batches:
        inside = batch.loss_weights != 0
        weights[trial.token_numbers(batch)[inside]] = batch.loss_weights[inside]
    return weights


def _make_values() -> dict[str, np.ndarray]:
    """Returns random values of each token; about 70% of the tokens are off-policy."""
    rng, size, values = np.random.default_rng(2), len(OWNER), trial.make_values()
    off_policy = rng.random(size) < 0.7
    gap = np.take(_GAPS, OWNER % len(_GAPS)) + rng.normal(0, 0.5, size)
    return values | {
        "sampler": values["old"] - np.where(off_policy, gap, 0.0),
        "reference": values["policy"] + rng.normal(0, 0.3, size),
        "off_policy": off_policy,
    }


def _rejected(c: RunConfig, batches: Sequence[Batch], values: Values) -> list[Batch]:
    """Computes `loss_weights`, with 0 for the tokens that the correction rejects."""
    weighed = weigh(
        batches,
        aggregation=c.objective.aggregation,
        constant=c.rollout.max_response_tokens,
    )
    laid = [trial.lay(batch, values)[2] for batch in weighed]
    reject = make_rejection(c)
    return reject(laid) if reject else laid


def _exact(kept: np.ndarray, aggregation: Aggregation, constant: int) -> np.ndarray:
    """Returns the weight that each token should have; 0 if it is not `kept`."""
    in_group = np.bincount(GROUP[kept], minlength=GROUP.max() + 1)
    in_completion = np.bincount(OWNER[kept], minlength=OWNER.max() + 1)
    completions = np.count_nonzero(in_completion)
    divisors = {
        "token": kept.sum(),
        "group": np.count_nonzero(in_group) * in_group[GROUP],
        "sequence": completions * in_completion[OWNER],
        "constant": completions * constant,
    }
    return kept / np.maximum(divisors[aggregation], 1)


def _differs(a: dict[str, Any], b: dict[str, Any], kept: np.ndarray) -> bool:
    return bool(np.abs(a["policy"] - b["policy"])[kept].max(initial=0.0) > TOLERANCE)
