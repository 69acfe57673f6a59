"""Compares this project with transformers and Math-Verify, if they are installed.

`requirements-test.txt` installs torch, which transformers needs, and Math-Verify.
"""

import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rl.processes.stopping import one_line
from tools.bench.work import THIS, Shape


def compare(
    result: dict[str, Any],
    peer: str,
    measure: Callable[[], Mapping[str, Any]],
    *,
    rate: str = "tokens_per_s",
) -> dict[str, Any]:
    """Adds a peer's figures, and this project's rates divided by the peer's.

    Args:
      result: the result of a bench, with this project's figures under `THIS`.
      peer: name of the peer's Python package. If it is not installed, nothing is added.
      measure: returns the peer's figures. If it fails, the error is added instead.
      rate: name of the figure whose ratios are computed.

    Returns:
      `result`, which is changed in place.
    """
    if importlib.util.find_spec(peer) is None:
        print(f"{peer}: not installed; install it to compare", file=sys.stderr)
        return result
    result[peer] = {"version": importlib.metadata.version(peer.replace("_", "-"))}
    try:
        result[peer] |= measure()
    except Exception as error:  # this project's figures must still be printed
        result[peer]["failed"] = f"{type(error).__name__}: {one_line(error)[:400]}"
        print(f"{peer}: failed: {result[peer]['failed']}", file=sys.stderr)
    result["ratios"] = {
        f"{name} / {peer}": row[rate] / result[peer][name][rate]
        for name, row in result[THIS].items()
        if name in result[peer]
    }
    return result


def math_verify() -> Callable[[str, str], bool]:
    """Returns a function that judges (prediction, gold) with Math-Verify."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def judge(predicted: str, gold: str) -> bool:
        # Without delimiters Math-Verify would look for numbers only.
        return verify(parse(f"${gold}$"), parse(f"${predicted}$"))

    return judge


def transformers_model(shape: Shape) -> Any:
    """Returns a transformers model of the given shape with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen2Config(**shape.hf_config(), pad_token_id=0)
    return transformers.Qwen2ForCausalLM(config)
