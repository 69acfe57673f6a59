"""How far behind may the policy be that draws, and which correction copes with it?

All arms sample on a vLLM server, since the embedded sampler shares its devices with the
update: `make vllm` comes first.
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
