"""Defines the flags of commands that sample, and opens the selected sampler."""

import argparse
import dataclasses
import os
from collections.abc import Sequence

import jax

from configs.reading import output_file
from models.hf import load_params
from rl.processes.devices import start_cpu_devices
from rollout.jax_sampler import JaxSampler
from rollout.layout import device_memory, make_layout
from rollout.types import Sampler
from rollout.vllm.fan_out import FleetSampler
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.placement import device_sets, make_servers
from rollout.vllm.server import ServerProcess, ServerSpec
from tools.evaluation.pretrained import Pretrained, split_model
from tools.evaluation.run import Conditions


def comma_separated(text: str) -> list[str]:
    """Splits a flag at commas and expands `~` to the home folder."""
    return [os.path.expanduser(part) for part in text.split(",") if part]


def add_flags(parser: argparse.ArgumentParser, *, slots: int, default: str) -> None:
    """Adds the flags of a command that samples from a model.

    `slots` is the default of `--slots`, and `default` describes the default conditions.
    """
    parser.add_argument("--model", help="HF folder, workdir of a run, or hub id")
    parser.add_argument("--limit", type=int, help="use only the first LIMIT problems")
    parser.add_argument("--json", type=output_file, help="also write the result here")
    group = parser.add_argument_group(f"conditions (default: {default})")
    group.add_argument("--template", help="none, qwen_math, r1, model, or a text")
    group.add_argument("--samples", type=int, help="completions per problem")
    group.add_argument("--temperature", type=float, help="0 is greedy")
    group.add_argument("--top_p", type=float)
    group.add_argument("--max_tokens", type=int, help="maximum tokens per completion")
    group.add_argument("--context", type=int, help="tokens of prompt and completion")
    group.add_argument("--seed", type=int)
    group.add_argument("--chunk", type=int, help="completions per sampler call")
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


def conditions_of(
    args: argparse.Namespace, default: Conditions, model: Pretrained
) -> Conditions:
    """Returns the default conditions with the overrides of the command line.

    The default context is limited to the positions of the model.
    """
    context = min(default.context, model.config.max_positions)
    values = dataclasses.asdict(default) | {"context": context}
    given = {name: getattr(args, name) for name in values}
    return Conditions(**values | {k: v for k, v in given.items() if v is not None})


def prepare(args: argparse.Namespace) -> None:
    """Selects the JAX devices of this process; call it before JAX runs anything."""
    if args.sampler == "jax":
        start_cpu_devices(0, rows=args.slots)
    else:
        jax.config.update("jax_platforms", "cpu")  # vLLM has the GPUs


def open_sampler(args: argparse.Namespace, model: Pretrained, context: int) -> Sampler:
    """Opens the sampler that the flags of `add_flags` select.

    Logs of the vLLM servers that it starts are written to the folder `args.out`.
    """
    if args.sampler == "jax":
        return open_jax_sampler(model, slots=args.slots, context=context)
    key = os.environ.get("VLLM_API_KEY", "")
    if args.url:
        return serve_fixed(urls=args.url, api_key=key, max_model_len=context)
    spec = ServerSpec(
        python=args.vllm_python,
        model=str(model.folder),
        dtype=model.dtype,
        max_model_len=context,
        api_key=key,
        load_format="auto",
    )
    sets = device_sets(args.devices, 0.0)
    servers = make_servers(spec, sets, key="--vllm_python", logs=args.out)
    return serve_fixed(servers=servers, max_model_len=context)


def open_jax_sampler(found: Pretrained, *, slots: int, context: int) -> JaxSampler:
    """Loads a model onto all devices and returns its sampler.

    Each copy of the weights is split over as few devices as can hold it together with
    its part of the cache.
    """
    model, mesh = split_model(found)
    longest = make_layout(
        model,
        slots=slots,
        tensor=0,
        response_length=context,
        # A prompt may be as long as the context.
        partial=True,
        room=device_memory(mesh),
    )
    # Without fixed lengths, each call compiles shapes for its own lengths.
    layout = dataclasses.replace(longest, response_length=0, partial=False)
    return JaxSampler(layout, load_params(found.folder, model, mesh))


def serve_fixed(
    *,
    servers: Sequence[ServerProcess] = (),
    urls: Sequence[str] = (),
    api_key: str = "",
    max_model_len: int,
    concurrency: int = 256,
) -> FleetSampler:
    """Returns a sampler over vLLM servers whose weights are never updated.

    The `servers` must have `load_format` "auto", to load the model when they start. For
    `max_model_len` see `FleetSampler`, for the other arguments `ServerFleet`.

    Raises:
      ServerFailed: a server did not start, or a server of `urls` does not answer.
      ServerRefused: a server rejects a request, or its maximum length is too small.
    """
    fleet = ServerFleet(
        servers=servers, urls=urls, api_key=api_key, concurrency=concurrency
    )
    try:
        fleet.start(
            attach=lambda client: client.attach(max_model_len=max_model_len),
            update=lambda client: None,
            check_restarted=lambda client, answer: None,
        )
        fleet.update_all()
    except BaseException:
        fleet.close()
        raise
    return FleetSampler(fleet, max_model_len=max_model_len)
