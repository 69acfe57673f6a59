"""Checks that a loss does not depend on packing or mesh, and other properties."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from sharding.mesh import make_mesh
from sharding.rules import named_sharding
from tools.objective.trial import OWNER, SHORT, Trial, layout, make_values

TOLERANCE = 1e-10
DEVICES = 8


@dataclasses.dataclass(frozen=True)
class Finding:
    name: str  # of the property, such as "packing"
    holds: bool
    message: str  # what was found, and the likely cause if the property does not hold

    def __str__(self) -> str:
        return f"{'holds ' if self.holds else 'BROKEN'}  {self.name}: {self.message}"


def loss_findings(trial: Trial) -> Iterator[Finding]:
    """Yields a finding for each property of a loss.

    If loss, gradient or metrics are not finite, checks no other property. Checks "first
    update" only if the loss has a metric "ratio".
    """
    (together,), values = layout(), make_values()
    plain = trial.run([together], values)
    yield (finite := _finite("finite", plain))
    if not finite.holds:
        return  # all other properties would fail for the same reason
    reached, total = np.count_nonzero(plain["policy"]), plain["policy"].size
    fault = "" if reached else "is 0 for all tokens"
    yield _finding("gradient", fault, f"reaches {reached} of {total} tokens")
    fourfold = trial.run([together], values, weight=4.0)
    yield _same("weights", {"policy": 4 * plain["policy"]}, fourfold)
    yield from _reach(trial.reach(together, values))
    short = layout(length=SHORT, rows=2 * DEVICES)
    mesh = make_mesh(data=2, fsdp=2, tensor=2, devices=jax.devices()[:DEVICES])
    for property, found in {
        "packing": trial.run(short, values),
        "shared prompts": trial.run(layout(share_prompts=True), values),
        "micro-batches": trial.run(layout(rows=1), values),
        "row order": trial.run([jax.tree.map(lambda x: x[::-1], together)], values),
        "mesh": trial.run(short, values, rows=named_sharding(mesh, "batch")),
        "masked positions": trial.run([together], values, apart=200.0),
    }.items():
        yield _same(property, plain, found)
    far = values["policy"].copy()
    far[[4, 20]] += 200.0, -200.0
    overflowing = trial.run([together], {**values, "policy": far}, dtype=np.float32)
    yield _finite("large ratios", overflowing)
    # In a step's first update, the policy's log-probabilities replace the old ones.
    policy, old = values["policy"], values["old"]
    reported = values | {"old": old - 50, "sampler": policy - 0.3}
    first = trial.run([together], reported, first=True)
    if "metric ratio" in first:
        yield _same("first update", {"metric ratio": first["metric tokens"]}, first)


# The likely cause if a property does not hold.
_WHY = {
    "finite": "the loss probably divides by 0 or takes the logarithm of 0, because all"
    " arrays are 0 outside loss_mask",
    "gradient": "the loss detaches policy_logprobs or does not use it",
    "weights": "four times the loss_weights must give four times the gradient; the"
    " caller applies loss_weights, so the loss must not",
    "completions": "compute sums and means with `segments`, not over rows or"
    " micro-batches",
    "alignment": "the loss shifts an array along the row",
    "packing": "the loss depends on the number or the length of rows",
    "shared prompts": "the loss counts prompt positions, which completions may share",
    "micro-batches": "the loss of a completion depends on its micro-batch",
    "row order": "the loss depends on the index of a row in the batch",
    "mesh": "the loss depends on how rows are split over devices",
    "masked positions": "the loss reads positions outside loss_mask",
    "large ratios": "log-ratios of +-200 overflow in float32; clamp the exponent as"
    " `rl.update.losses.importance` does",
    "first update": "it must be 1 in a step's first update; compute it per token from"
    " policy_logprobs - old_logprobs",
}


def _finding(name: str, fault: str, well: str) -> Finding:
    return Finding(name, not fault, f"{fault}: {_WHY[name]}" if fault else well)


def _finite(name: str, found: Mapping[str, Any]) -> Finding:
    bad = [key for key, value in found.items() if not np.isfinite(value).all()]
    fault = f"{_LABELS.get(bad[0], bad[0])} is not finite" if bad else ""
    return _finding(name, fault, "loss, gradient and metrics are finite")


def _same(name: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Finding:
    off = {key: _distance(found[key], value) for key, value in wanted.items()}
    worst = max(off, key=lambda key: off[key])
    differs = f"{_LABELS.get(worst, worst)} differs by {off[worst]:.1e}"
    return _finding(name, differs if off[worst] > TOLERANCE else "", differs)


_LABELS = {
    "policy": "the gradient",
    "entropy": "the gradient with respect to the entropy",
    "part": "a token's part of the loss",
}


def _distance(a: Any, b: Any) -> float:
    """Returns max |a - b| / max(1, max |b|), or infinity if `a - b` is not finite."""
    difference, size = np.max(np.abs(np.subtract(a, b))), np.max(np.abs(b))
    return float(difference / max(size, 1.0)) if np.isfinite(difference) else np.inf


def _reach(acts: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    strangers = OWNER[:, None] != OWNER
    leaks = {name: int((on & strangers).sum()) for name, on in acts.items()}
    named = ", ".join(name for name, count in leaks.items() if count)
    fault = (
        f"values of {named} in one completion affect the loss of another"
        f" (pairs of tokens: {sum(leaks.values())})"
    )
    yield _finding(
        "completions", fault if named else "", "none affects the loss of another"
    )
    # Values of a token may affect the tokens that its policy log-probability affects.
    reach = acts["policy"] | np.eye(len(OWNER), dtype=bool)
    shifted = [name for name, on in acts.items() if (on & ~strangers & ~reach).any()]
    if acts["policy"].any() and not acts["policy"].diagonal().any():
        shifted.append("policy")
    fault = f"values of {', '.join(shifted)} at one token affect the loss of another"
    yield _finding(
        "alignment", fault if shifted else "", "all arrays refer to the same token"
    )
