"""Which parts of the recipe help a real language model? Its first stage, part by part.

    python -m tools.ablate --config=configs/ablations/recipe.py --out=runs/recipe

Every arm makes the same number of updates with the same number of completions trained
on; compare them at equal sampled tokens (the report's curves), since an arm without
refill samples less for each update. `format_only` rewards any box and so shows what the
form of the answer gains by itself. Held-out problems are judged by the verifier.
"""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        "full": {},
        "format_only": {
            "reward.function": "rl.reward.judges:boxed",
            "eval.reward": "verifier",
        },
        "symmetric_clip": {"objective.eps_high": 0.2},
        "no_refill": {
            "dynamic_sampling.max_rounds": 1,
            "dynamic_sampling.oversample": 1.0,
            "dynamic_sampling.on_shortfall": "partial",
        },
        "kl=0.01": {"objective.kl_penalty": 0.01},
    },
    reference="full",
    base="configs/smollm2_words.py:first",
)
