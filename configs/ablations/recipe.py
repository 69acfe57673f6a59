"""Changes one part of the recipe at a time, for a real language model (SmolLM2).

    python -m tools.ablate --config=configs/ablations/recipe.py --workdir=runs/recipe

All arms run only the first stage of `configs/smollm2_words.py`. Compare them at equal
numbers of sampled tokens (the report's curves), because `no_refill` samples fewer
completions per step. `format_only` rewards every boxed answer, and so measures how much
accuracy comes from the answer format alone. The verifier judges held-out problems in
every arm.
"""

from configs.ablation import Ablation
from configs.ablations import dynamic_sampling

ABLATION = Ablation(
    arms={
        "full": {},
        "format_only": {
            "reward.function": "rl.reward.judges:boxed",
            "eval.reward": "verifier",
        },
        "symmetric_clip": {"objective.eps_high": 0.2},
        "no_refill": dynamic_sampling.ABLATION.arms["filter"],
        "kl=0.01": {"objective.kl_penalty": 0.01},
    },
    reference="full",
    base="configs/smollm2_words.py:first",
)
