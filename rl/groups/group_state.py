"""Groups to JSON and back, bit for bit: what a checkpoint keeps of a batch."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rl.groups.arrays import decode_array, encode_array
from rl.types import Group, Problem
from rollout.types import Completion


def group_state(group: Group) -> dict[str, Any]:
    return {
        "problem": dataclasses.asdict(group.problem),
        "prompt_ids": encode_array(group.prompt_ids),
        "completions": [completion_state(c) for c in group.completions],
        "correct": encode_array(group.correct),
        "raw": encode_array(group.raw),
        "rewards": encode_array(group.rewards),
        "components": {k: encode_array(v) for k, v in group.components.items()},
        "created_step": group.created_step,
        "rules": list(group.rules),
    }


def restore_group(state: Mapping[str, Any]) -> Group:
    problem = dict(state["problem"])
    problem["answers"] = tuple(problem["answers"])
    return Group(
        problem=Problem(**problem),
        prompt_ids=decode_array(state["prompt_ids"]),
        completions=tuple(restore_completion(c) for c in state["completions"]),
        correct=decode_array(state["correct"]),
        raw=decode_array(state["raw"]),
        rewards=decode_array(state["rewards"]),
        components={k: decode_array(v) for k, v in state["components"].items()},
        created_step=state["created_step"],
        rules=tuple(state["rules"]),
    )


def completion_state(completion: Completion) -> dict[str, Any]:
    return {
        "token_ids": encode_array(completion.token_ids),
        "sampler_logprobs": encode_array(completion.sampler_logprobs),
        "finish_reason": completion.finish_reason,
        "versions": encode_array(completion.versions),
    }


def restore_completion(state: Mapping[str, Any]) -> Completion:
    return Completion(
        token_ids=decode_array(state["token_ids"]),
        sampler_logprobs=decode_array(state["sampler_logprobs"]),
        finish_reason=state["finish_reason"],
        versions=decode_array(state["versions"]),
    )
