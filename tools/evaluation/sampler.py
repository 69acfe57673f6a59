"""Defines the sampler flags of commands, and opens the selected sampler."""

import argparse
import os

from rollout.types import Sampler
from tools.evaluation.run import Pretrained


def comma_separated(text: str) -> list[str]:
    """Splits a flag at commas and expands `~` to the home folder."""
    return [os.path.expanduser(part) for part in text.split(",") if part]


def add_flags(parser: argparse.ArgumentParser, *, slots: int) -> None:
    """Adds the flags that `prepare` and `open_sampler` read."""
    group = parser.add_argument_group("sampler")
    group.add_argument("--sampler", choices=("jax", "vllm"), default="jax")
    group.add_argument("--dtype", default="auto", help="auto: that of config.json")
    group.add_argument(
        "--slots", type=int, default=slots, help="completions decoded together (jax)"
    )
    group.add_argument(
        "--vllm_python",
        default=".venv-vllm/bin/python",
        help="Python of the environment with vLLM",
    )
    group.add_argument(
        "--url",
        type=comma_separated,
        default=[],
        help="comma-separated URLs of servers that already serve this model (vllm)",
    )
    group.add_argument(
        "--devices",
        default="",
        help="GPUs of each server to start, such as 0,1;2,3 (vllm)",
    )


# The functions below import JAX, so that commands without a model start without JAX.


def prepare(args: argparse.Namespace) -> None:
    """Selects the JAX devices of this process; call it before the first use of JAX."""
    import jax

    from rl.processes.devices import start_cpu_devices

    if args.sampler == "jax":
        start_cpu_devices(0, rows=args.slots)
    else:
        jax.config.update("jax_platforms", "cpu")  # vLLM has the GPUs


def open_sampler(args: argparse.Namespace, model: Pretrained, context: int) -> Sampler:
    """Opens the sampler that the flags of `add_flags` select.

    Args:
      args: parsed flags; logs of vLLM servers are written to the folder `args.out`.
      model: the model to sample from.
      context: maximum length of prompt and completion together, in tokens.

    Raises:
      ValueError: the model does not fit on the devices, or `--vllm_python` is missing.
    """
    from rollout.vllm.placement import device_sets, make_servers
    from tools.evaluation.fixed import FixedVllmSampler
    from tools.evaluation.pretrained import open_jax_sampler

    if args.sampler == "jax":
        return open_jax_sampler(
            model.folder, dtype=model.dtype, slots=args.slots, context=context
        )
    key = os.environ.get("VLLM_API_KEY", "")
    if args.url:
        return FixedVllmSampler(urls=args.url, api_key=key, max_model_len=context)
    servers = make_servers(
        device_sets(args.devices, 0.0),
        python=args.vllm_python,
        key="--vllm_python",
        folder=model.folder,
        logs=args.out,
        dtype=model.dtype,
        max_model_len=context,
        api_key=key,
        load_format="auto",
    )
    return FixedVllmSampler(servers=servers, max_model_len=context)
