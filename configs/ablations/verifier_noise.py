"""What do wrong verdicts cost? 5 and 10% of them inverted, in both directions.

`random` inverts single completions, by a hash of the completion. `systematic` inverts
all completions of a problem, by a hash of the problem, as a wrong gold does. The
verifier judges held-out problems in every arm.
"""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        "none": {},
        **{
            arm: {
                "reward.function": f"rl.reward.judges:{judge}",
                "eval.reward": "verifier",
            }
            for arm, judge in {
                "random=5%": "flipped_5",
                "random=10%": "flipped_10",
                "systematic=5%": "flipped_5_problems",
                "systematic=10%": "flipped_10_problems",
            }.items()
        },
    },
    reference="none",
)
