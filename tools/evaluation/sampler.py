"""Samples completions of a model, as flags of the command line select."""

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence

import jax

from configs.reading import comma_separated
from models.hf import load_params
from rl import files
from rl.problems.reading import write_problems
from rl.processes.devices import start_cpu_devices
from rl.types import Problem
from rollout.jax_sampler import JaxSampler
from rollout.layout import device_memory, make_layout
from rollout.types import Sampler
from rollout.vllm.client import api_key
from rollout.vllm.fan_out import FanOut
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.placement import device_sets, make_servers
from rollout.vllm.server import ServerProcess, ServerSpec
from tools.evaluation import audit, run
from tools.evaluation.benchmarks import content_hash
from tools.evaluation.files import AUDIT, problems_file, record_conditions
from tools.evaluation.pretrained import Pretrained, find_pretrained, split_model


def positive_number(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return int(text)


def add_flags(parser: argparse.ArgumentParser, *, slots: int, default: str) -> None:
    """Adds the flags for sampling; `default` describes the conditions without flags."""
    text = "HF folder, workdir of a run, or hub id"
    parser.add_argument("--model", type=os.path.expanduser, help=text)
    text = "use only the first LIMIT problems"
    parser.add_argument("--limit", type=positive_number, help=text)
    add = parser.add_argument_group(f"conditions (default: {default})").add_argument
    add("--template", help="none, qwen_math, r1, model, or a text")
    add("--samples", type=int, help="completions per problem")
    add("--temperature", type=float, help="0 is greedy")
    add("--top_p", type=float)
    add("--max_tokens", type=int, help="maximum tokens per completion")
    add("--context", type=int, help="tokens of prompt and completion")
    add("--seed", type=int)
    add("--chunk", type=int, help="completions per sampler call")
    add = parser.add_argument_group("sampler").add_argument
    add("--sampler", choices=("jax", "vllm"), default="jax")
    add("--dtype", default="auto", help="auto: that of config.json")
    text = "completions decoded together (jax)"
    add("--slots", type=positive_number, default=slots, help=text)
    add("--vllm_python", default=".venv-vllm/bin/python", help="Python with vLLM")
    urls = "comma-separated URLs of servers that already serve this model (vllm)"
    add("--url", type=comma_separated, action="extend", default=[], help=urls)
    add("--devices", default="", help="GPUs of each server, such as 0,1;2,3 (vllm)")


def sample(
    args: argparse.Namespace,
    default: run.Conditions,
    sets: Mapping[str, Sequence[Problem]],
    *,
    audited: bool = False,
    shorten: bool = True,
) -> None:
    """Samples the completions that the folder `args.out` lacks.

    Args:
      args: the parsed flags of `add_flags`, and `out`.
      default: conditions without flags. A larger --max_tokens raises their context,
        and the number of positions of the model limits it.
      sets: problems by name of the benchmark.
      audited: also sample the ends of the problem texts; see `tools.evaluation.audit`.
      shorten: sample fewer than `max_tokens` tokens where the context leaves fewer. If
        false, such a prompt is an error.

    Raises:
      ValueError: the model or a flag is not valid, a prompt does not fit, or the folder
        has completions of other conditions.
    """
    if args.sampler == "jax" and (args.url or args.devices):
        flag = "--url" if args.url else "--devices"
        raise ValueError(f"{flag}: has no effect without --sampler vllm; add it")
    # Before JAX runs anything.
    if args.sampler == "jax":
        start_cpu_devices(0, rows=args.slots)
    else:
        jax.config.update("jax_platforms", "cpu")  # vLLM has the GPUs
    model = find_pretrained(args.model, args.dtype)
    more = max(0, (args.max_tokens or 0) - default.max_tokens)
    context = min(default.context + more, model.config.max_positions)
    given = {key: getattr(args, key) for key in dataclasses.asdict(default)}
    given = {key: value for key, value in given.items() if value is not None}
    conditions = dataclasses.replace(default, **{"context": context} | given)
    tasks = [run.make_task(args.out, *item, model, conditions) for item in sets.items()]
    facts = {
        task.name: {
            "problems": len(task.problems),
            "sha256": content_hash(task.problems),
            "shortened": run.check_prompts(
                task, model.config.max_positions, shorten=shorten
            ),
        }
        for task in tasks
    }
    drawing = dataclasses.asdict(conditions) | {
        "limit": args.limit,
        "sampler": args.sampler,
        "dtype": "the server's own" if args.url else model.dtype,
        "stop_token_ids": list(model.stop_token_ids),
        "checkpoint": run.checkpoint_hash(model.folder),
    }
    if audited:
        folder = args.out / AUDIT
        for item in sets.items():
            tasks += audit.tasks(folder, *item, model, conditions.context)
    with files.locked(args.out):
        recorded = {"model": args.model, "drawing": drawing, "benchmarks": facts}
        record_conditions(args.out, recorded)
        for name, problems in sets.items():
            path = problems_file(args.out, name)
            path.parent.mkdir(exist_ok=True)
            write_problems(path, problems)
        context = conditions.context
        run.complete(tasks, lambda: open_sampler(args, model, context), model)


def open_sampler(args: argparse.Namespace, model: Pretrained, context: int) -> Sampler:
    """Opens the sampler that the flags select; vLLM servers log into `args.out`."""
    if args.sampler == "jax":
        return open_jax_sampler(model, slots=args.slots, context=context)
    if args.url:
        names = pathlib.Path(args.model).resolve().name, model.folder.resolve().name
        return serve_fixed(urls=args.url, max_model_len=context, names=names)
    spec = ServerSpec(
        python=args.vllm_python,
        model=str(model.folder),
        dtype=model.dtype,
        max_model_len=context,
        api_key=api_key(),
        load_format="auto",
    )
    sets = device_sets(args.devices, 0.0)
    servers = make_servers(spec, sets, key="--vllm_python", logs=args.out)
    return serve_fixed(servers=servers, max_model_len=context)


def open_jax_sampler(found: Pretrained, *, slots: int, context: int) -> JaxSampler:
    """Loads a model onto all devices and returns its sampler."""
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
    max_model_len: int,
    concurrency: int = 256,
    names: Sequence[str] = (),
) -> FanOut:
    """Starts `servers`, connects to the servers at `urls`, and returns their sampler.

    The weights of these vLLM servers are never updated. The `servers` must have
    `load_format` "auto", to load the model when they start; `names`: see `attach`.
    """
    fleet = ServerFleet(
        servers=servers, urls=urls, api_key=api_key(), concurrency=concurrency
    )
    try:
        fleet.start(
            attach=lambda client: client.attach(
                max_model_len=max_model_len, names=names
            ),
            update=lambda client: None,
            check_restarted=lambda client, answer: None,
        )
        fleet.update_all()
    except BaseException:
        fleet.close()
        raise
    return FanOut(fleet, max_model_len=max_model_len)
