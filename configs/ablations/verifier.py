"""Does the judge matter? Other judges, and ours with some of its verdicts turned round.

Which ones is settled by a hash of the completion, so that the same completion meets the
same mistake again. Held-out problems are judged by the verifier in every arm.
"""

import importlib.util

from configs.ablation import Ablation

_JUDGES = {
    "exact_match": "rl.reward.judges:exact_match",
    "math_verify": "rl.reward.judges:math_verify",
    "flipped=1%": "rl.reward.judges:flipped_1",
    "flipped=3%": "rl.reward.judges:flipped_3",
    "flipped=10%": "rl.reward.judges:flipped_10",
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
get_config = ABLATION.get_config
