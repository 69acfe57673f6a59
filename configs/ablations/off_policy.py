"""Compares degrees of staleness of the sampling policy, and off-policy corrections.

All arms sample on a vLLM server, because the jax backend cannot sample during an
update. Install vLLM first: `make vllm`.
"""

from configs.ablation import Ablation

_VLLM = {"rollout.backend": "vllm"}
_ASYNC_4 = _VLLM | {"rollout.schedule": "async", "rollout.max_staleness": 4}

ABLATION = Ablation(
    arms={
        "sync": _VLLM,
        "one_step_off": _VLLM | {"rollout.schedule": "one_step_off"},
        "async=2": _VLLM | {"rollout.schedule": "async", "rollout.max_staleness": 2},
        "async=4": _ASYNC_4,
        "async=4,mask": _ASYNC_4 | {"objective.correction": "mask"},
        "async=4,geometric": _ASYNC_4 | {"objective.correction": "geometric"},
    },
    reference="sync",
)
