"""Compares the verifier with other judges as the reward.

The verifier judges held-out problems in every arm.
"""

import importlib.util

from configs.ablation import Ablation

_JUDGES = {
    "exact_match": "rl.reward.judges:exact_match",
    "math_verify": "rl.reward.judges:math_verify",
}
if importlib.util.find_spec("math_verify") is None:
    del _JUDGES["math_verify"]

ABLATION = Ablation(
    arms={
        "verifier": {},
        **{
            name: {"reward.function": judge, "eval.reward": "verifier"}
            for name, judge in _JUDGES.items()
        },
    },
    reference="verifier",
)
