"""The sampler that a command asks: its flags, and how it is opened."""

import argparse
import os
import pathlib

from rollout.types import Sampler


def comma_separated(text: str) -> list[str]:
    """The non-empty parts of a flag such as `a,b`; `~` is the home folder."""
    return [os.path.expanduser(part) for part in text.split(",") if part]


def add_flags(parser: argparse.ArgumentParser, *, slots: int) -> None:
    """Adds the flags that `prepare` and `open_sampler` read.

    Args:
      parser: of the command.
      slots: the default of `--slots`.
    """
    group = parser.add_argument_group("sampler")
    group.add_argument("--sampler", choices=("jax", "vllm"), default="jax")
    group.add_argument("--dtype", default="auto", help="auto: the checkpoint's own")
    group.add_argument(
        "--slots", type=int, default=slots, help="decoded together (jax)"
    )
    group.add_argument(
        "--tensor", type=int, default=0, help="devices per copy (jax); 0: the fewest"
    )
    group.add_argument(
        "--vllm_python",
        default=".venv-vllm/bin/python",
        help="of the environment that holds vLLM",
    )
    group.add_argument(
        "--url",
        type=comma_separated,
        default=[],
        help="comma-separated servers that already serve this model (vllm)",
    )
    group.add_argument(
        "--devices", default="", help="GPUs of the servers to start, as 0,1;2,3 (vllm)"
    )


# JAX is imported inside, so that what needs no model starts without it.


def prepare(args: argparse.Namespace) -> None:
    """Chooses the devices of this process. Before JAX is first used."""
    from rl.hosts.devices import start_cpu_devices
    from tools.evaluation.pretrained import leave_accelerators

    if args.sampler == "jax":
        start_cpu_devices(0, rows=args.slots)
    else:
        leave_accelerators()


def open_sampler(
    args: argparse.Namespace, folder: pathlib.Path, *, dtype: str, context: int
) -> Sampler:
    """Serves a Hugging Face folder as the flags say.

    Args:
      args: with the flags of `add_flags`, and `out`, which gets the servers' logs.
      folder: with config.json and safetensors.
      dtype: a key of `models.hf.DTYPES`.
      context: longest prompt and completion together, in tokens.
    """
    from tools.evaluation.pretrained import open_jax_sampler, open_vllm_sampler

    if args.sampler == "jax":
        return open_jax_sampler(
            folder, dtype=dtype, slots=args.slots, context=context, tensor=args.tensor
        )
    return open_vllm_sampler(
        folder,
        dtype=dtype,
        max_model_len=context,
        python=args.vllm_python,
        urls=args.url,
        devices=args.devices,
        logs=args.out,
    )
