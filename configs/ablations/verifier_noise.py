"""Measures the effect of wrong verdicts: 5% or 10% of all verdicts are inverted.

`random` inverts the verdicts of single completions, chosen by a hash of problem and
completion. `systematic` inverts all verdicts of a problem, chosen by a hash of the
problem; a wrong reference answer has a similar effect. The verifier judges held-out
problems in every arm.
"""

from configs.ablation import Ablation

_JUDGES = {
    "random=5%": "flipped_5",
    "random=10%": "flipped_10",
    "systematic=5%": "flipped_5_problems",
    "systematic=10%": "flipped_10_problems",
}

ABLATION = Ablation(
    arms={"none": {}}
    | {
        arm: {"reward.function": f"rl.reward.judges:{judge}", "eval.reward": "verifier"}
        for arm, judge in _JUDGES.items()
    },
    reference="none",
)
