"""Compares the verifier with other judges as the reward.

The verifier judges held-out problems in every arm.
"""

import importlib.util

from configs.ablation import Ablation

_JUDGES = ["exact_match"]
if importlib.util.find_spec("math_verify"):
    _JUDGES.append("math_verify")

ABLATION = Ablation(
    arms={"verifier": {}}
    | {
        name: {"reward.function": f"rl.reward.judges:{name}", "eval.reward": "verifier"}
        for name in _JUDGES
    },
    reference="verifier",
)
