"""Compares all built-in losses, with the settings of their papers except KL terms.

The methods of `configs/objectives.py` also set clip bounds, advantage and aggregation,
so an arm differs from the base in more than its loss. Some papers give no clip bounds:
`dppo` has those of DAPO, `dual_clip` those of the base, and `cispo` an upper bound of
our choice. DPPO bounds the change of a token's probability, not the ratio.
"""

from collections.abc import Mapping
from typing import Any

from configs import objectives
from configs.ablation import Ablation

_METHODS: Mapping[str, Mapping[str, Any]] = {
    "dapo": objectives.DAPO,
    "grpo": objectives.GRPO,
    "dr_grpo": objectives.DR_GRPO,
    "gspo": objectives.GSPO,
    "cispo": objectives.CISPO,
    "scale_rl": objectives.SCALE_RL,
    "max_rl": objectives.MAX_RL,
    "dual_clip": {"function": "dual_clip"},
    "dppo": objectives.DPPO,
}

ABLATION = Ablation(
    arms={
        name: {f"objective.{key}": value for key, value in method.items()}
        for name, method in _METHODS.items()
    },
    reference="dapo",
)
