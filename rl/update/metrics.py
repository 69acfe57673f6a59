"""Computes the logged metrics of a step's updates from their statistics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl.update.objective import MEASURED


def update_metrics(stats: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the metrics of a step, from the result of `Step.update` for each update.

    Most metrics are means or maxima over the tokens of all updates. The gaps to the
    sampler's and to the old log-probabilities are those of the first update.
    """

    def total(key, some=stats):
        return float(sum(s["sum"][key] for s in some))

    def mean(key, per="tokens", some=stats):
        count = total(per, some)
        return total(key, some) / count if count else 0.0

    first = stats[:1]
    # In the first update the policy is still the version that sampled fresh tokens.
    fresh, drawn = total("fresh", first), total("tokens", first)
    gaps = {}
    if fresh:
        gaps["policy/sampler_gap_mean"] = total("sampler_gap", first) / fresh
        gaps["policy/sampler_gap_max"] = float(first[0]["max"]["sampler_gap"])
    if drawn > fresh:
        gaps["off_policy/stale_gap"] = total("stale_gap", first) / (drawn - fresh)
    if len(stats) > 1:  # one update alone needs no old log-probabilities
        gaps["policy/old_gap_mean"] = mean("old_gap", some=first)
        gaps["policy/old_gap_max"] = float(first[0]["max"]["old_gap"])
    metrics = {
        "policy/loss": float(np.mean([s["loss"] for s in stats])),
        "policy/grad_norm": float(np.mean([s["grad_norm"] for s in stats])),
        "policy/entropy": mean("entropy"),
        "policy/kl_old_policy": mean("kl_old_policy"),
        **gaps,
        "policy/skipped": float(sum(s["skipped"] for s in stats)),
        "policy/skipped_in_a_row": float(max(s["skipped_in_a_row"] for s in stats)),
        "off_policy/tokens": mean("off_policy"),
    }
    if total("off_policy"):
        count, weights = total("off_policy"), total("correction")
        metrics |= {
            "off_policy/weight_mean": weights / count,
            "off_policy/weight_max": float(max(s["max"]["correction"] for s in stats)),
            "off_policy/effective_sample_size": weights**2
            / max(count * total("correction_squared"), 1e-30),
        }
    if "rejected" in stats[0]["sum"]:
        rejected = total("rejected")
        metrics["off_policy/rejected"] = rejected / max(rejected + total("tokens"), 1)
    for name in stats[0]["sum"].keys() - MEASURED:  # metrics of the loss function
        if name in stats[0]["max"]:
            metrics[f"policy/{name}_mean"] = mean(name)
            metrics[f"policy/{name}_max"] = float(max(s["max"][name] for s in stats))
        else:
            metrics[f"policy/{name}"] = mean(name)
    return metrics
