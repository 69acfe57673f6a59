"""Defines ablations that are ready to run.

    python -m tools.ablate --config=configs/ablations.py:NAME --workdir=DIR

Each arm of an ablation is a config too, `configs/ablations.py:NAME:ARM`.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any

from configs import objectives, quickstart_staged
from configs.ablation import Ablation, grid, make_get_config

_FILTER = {
    "dynamic_sampling.max_rounds": 1,
    "dynamic_sampling.oversample": 1.0,
    "dynamic_sampling.on_shortfall": "partial",
}
_METHODS: Mapping[str, Mapping[str, Any]] = {
    "dapo": objectives.DAPO,
    "grpo": objectives.GRPO,
    "dr_grpo": objectives.DR_GRPO,
    "gspo": objectives.GSPO,
    "cispo": objectives.CISPO,
    "scale_rl": objectives.SCALE_RL,
    "max_rl": objectives.MAX_RL,
    "dppo": objectives.DPPO,
    "dual_clip": {"function": "dual_clip"},
}
_STAGES = quickstart_staged.get_config().curriculum.stages
_VLLM = {"rollout.backend": "vllm"}
_ASYNC_4 = _VLLM | {"rollout.schedule": "async", "rollout.max_staleness": 4}


def _judged_by(function: str) -> dict[str, str]:
    """Replaces the training reward; the verifier judges held-out problems."""
    return {
        "reward.function": f"rl.reward.judges:{function}",
        "eval.reward": "verifier",
    }


_JUDGES = ["exact_match"]
if importlib.util.find_spec("math_verify"):
    _JUDGES.append("math_verify")

ABLATIONS = {
    "advantage": Ablation(
        question="Compares the built-in advantages; see `rl.groups.advantages`.",
        arms=grid(
            {"objective.advantage": ("std", "mean", "batch_std", "maxrl",
                                     "leave_one_out")}
        ),
    ),
    "aggregation": Ablation(
        question="Compares the ways to average token losses. `constant` divides by the"
        " largest allowed length, so its gradients are smaller than in the other arms;"
        " Adam's updates hardly depend on this scale.",
        arms=grid(
            {"objective.aggregation": ("token", "group", "sequence", "constant")}
        ),
    ),
    "clip_higher": Ablation(
        question="Compares upper clip bounds. Compass-Thinker's paper gives none; DAPO"
        " uses 0.28.",
        arms=grid({"objective.eps_high": (0.28, 0.20, 0.24, 0.32, 0.36, 0.40)}),
    ),
    "draws": Ablation(
        question="Compares the values of `sampling.policy` on problems that mostly give"
        " no gradient.",
        arms={"uniform": {}, "signal": {"sampling.policy": "signal"}},
        base="configs/uneven_sums.py",
    ),
    "dynamic_sampling": Ablation(
        question="Compares ways to treat groups whose completions are all right or all"
        " wrong. `off` trains on them: they only add to the number of tokens by which"
        " the loss is divided. `filter` drops them, so batches are smaller. `refill`,"
        " the method of Compass-Thinker and DAPO, samples others in their place.",
        arms={
            "refill": {},
            "filter": _FILTER,
            "off": {"dynamic_sampling.filter": False},
        },
    ),
    "group_size": Ablation(
        question="Compares group sizes, with 256 completions and two updates per step.",
        arms={
            f"group_size={size}": {
                "rollout.group_size": size,
                "batch.prompts_per_step": 256 // size,
                "batch.prompts_per_update": 128 // size,
            }
            for size in (8, 4, 16, 32)
        },
    ),
    "kl": Ablation(
        question="Compares training without a KL term to KL penalties against the base"
        " model.",
        arms={
            "none": {},
            **grid({"objective.kl_estimate": ("k3",),
                    "objective.kl_penalty": (0.001, 0.01, 0.1)}),
            **grid({"objective.kl_estimate": ("k1",), "objective.kl_penalty": (0.01,)}),
        },
    ),
    "objective": Ablation(
        question="Compares all built-in losses, with the settings of their papers"
        " except KL terms (`configs/objectives.py`), so an arm differs from the base in"
        " more than its loss. Papers without clip bounds: `dppo` has those of DAPO,"
        " `dual_clip` those of the base, and `cispo` an upper bound of our choice.",
        arms={
            name: {f"objective.{key}": value for key, value in method.items()}
            for name, method in _METHODS.items()
        },
    ),
    "off_policy": Ablation(
        question="Compares degrees of staleness of the sampling policy, and off-policy"
        " corrections. All arms sample on a vLLM server (`make vllm`), because the jax"
        " backend cannot sample during an update.",
        arms={
            "sync": _VLLM,
            "one_step_off": _VLLM | {"rollout.schedule": "one_step_off"},
            "async=2": _ASYNC_4 | {"rollout.max_staleness": 2},
            "async=4": _ASYNC_4,
            "async=4,mask": _ASYNC_4 | {"objective.correction": "mask"},
            "async=4,geometric": _ASYNC_4 | {"objective.correction": "geometric"},
        },
    ),
    "recipe": Ablation(
        question="Changes one part of the recipe at a time, for a real language model."
        " Compare the arms at equal numbers of sampled tokens, because `no_refill`"
        " samples fewer completions per step. `format_only` rewards every boxed answer,"
        " and so measures how much accuracy comes from the answer format alone.",
        arms={
            "full": {},
            "format_only": _judged_by("boxed"),
            "symmetric_clip": {"objective.eps_high": 0.2},
            "no_refill": _FILTER,
            "kl=0.01": {"objective.kl_penalty": 0.01},
        },
        base="configs/smollm2_words.py:first",
    ),
    "stages": Ablation(
        question="Compares the quickstart in stages of difficulty with training on all"
        " levels.",
        arms={"plain": {}, "staged": {"curriculum.stages": _STAGES}},
    ),
    "updates": Ablation(
        question="Compares 4 updates per step with 16, which are either four PPO epochs"
        " or smaller mini-batches.",
        arms={
            "4": {"batch.prompts_per_update": 8},
            "16_by_epochs": {"batch.prompts_per_update": 8, "batch.ppo_epochs": 4},
            "16_by_smaller_batches": {"batch.prompts_per_update": 2},
        },
    ),
    "verifier": Ablation(
        question="Compares the verifier with other judges as the reward. The verifier"
        " judges held-out problems in every arm.",
        arms={"verifier": {}} | {name: _judged_by(name) for name in _JUDGES},
    ),
    "verifier_noise": Ablation(
        question="Measures the effect of wrong verdicts: 5% or 10% of all verdicts are"
        " inverted. `random` inverts verdicts of completions, `systematic` all verdicts"
        " of a problem, as a wrong reference answer would. The verifier judges held-out"
        " problems in every arm.",
        arms={
            "none": {},
            "random=5%": _judged_by("flipped_5"),
            "random=10%": _judged_by("flipped_10"),
            "systematic=5%": _judged_by("flipped_5_problems"),
            "systematic=10%": _judged_by("flipped_10_problems"),
        },
    ),
}  # fmt: skip

get_config = make_get_config(ABLATIONS)
