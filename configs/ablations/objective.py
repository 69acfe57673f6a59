"""Every loss that is built in, with the bounds, advantage and mean of its paper.

A method of `configs/objectives.py` sets all four, so that it differs from the base in
more than its loss. DPPO's bounds are of a probability's change; they and dual clip's
are the base's numbers, which their papers do not give.
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
