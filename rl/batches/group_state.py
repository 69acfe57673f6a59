"""Groups to JSON and back, bit for bit: what a checkpoint keeps of a batch."""

import base64
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from rl.types import Group, Problem
from rollout.types import Completion


def _encode_array(array: np.ndarray) -> dict[str, str]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": str(array.dtype), "data": data}


def _decode_array(state: Mapping[str, str]) -> np.ndarray:
    data = base64.b64decode(state["data"])
    return np.frombuffer(data, state["dtype"]).copy()


def group_state(group: Group) -> dict[str, Any]:
    return {
        "problem": dataclasses.asdict(group.problem),
        "prompt_ids": _encode_array(group.prompt_ids),
        "completions": [
            {
                "token_ids": _encode_array(c.token_ids),
                "sampler_logprobs": _encode_array(c.sampler_logprobs),
                "finish_reason": c.finish_reason,
                "versions": _encode_array(c.versions),
            }
            for c in group.completions
        ],
        "correct": _encode_array(group.correct),
        "raw": _encode_array(group.raw),
        "rewards": _encode_array(group.rewards),
        "components": {k: _encode_array(v) for k, v in group.components.items()},
        "born": group.born,
        "rules": list(group.rules),
    }


def restore_group(state: Mapping[str, Any]) -> Group:
    problem = dict(state["problem"])
    problem["answers"] = tuple(problem["answers"])
    return Group(
        problem=Problem(**problem),
        prompt_ids=_decode_array(state["prompt_ids"]),
        completions=tuple(
            Completion(
                token_ids=_decode_array(c["token_ids"]),
                sampler_logprobs=_decode_array(c["sampler_logprobs"]),
                finish_reason=c["finish_reason"],
                versions=_decode_array(c["versions"]),
            )
            for c in state["completions"]
        ),
        correct=_decode_array(state["correct"]),
        raw=_decode_array(state["raw"]),
        rewards=_decode_array(state["rewards"]),
        components={k: _decode_array(v) for k, v in state["components"].items()},
        born=state["born"],
        rules=tuple(state.get("rules", ())),  # an older checkpoint has none
    )
