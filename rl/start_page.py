"""Makes the page that a run prints at its start: its inputs, sizes and outputs."""

import contextlib
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys

import jax

from configs.base import RunConfig, in_stage
from configs.checks import settings_without_effect, updates_per_step
from configs.reading import changes
from configs.schema import config_json
from models import lora
from models.decoder import abstract_params
from rl.base_model import model_from_config, parameter_count
from rl.checkpoint import describe_cost, state_bytes
from rl.problems.audit import describe_faults
from rl.reward.rewards import VERIFIER, uses_verifier
from rl.run_spec import EVALUATION, TRAINING, ProblemSet, RunSpec, reward_formulas
from rl.update.optimizer import make_optimizer
from rollout.cores import usable_cores
from rollout.vllm.client import VllmClient, api_key

_MOST_CHARACTERS, _MOST_TOKENS = 1000, 32  # limits of the prompt that is shown
_VLLM = "from importlib.metadata import version; print(version('vllm'))"


def dry_run(spec: RunSpec, workdir: pathlib.Path) -> str:
    """Returns the start page and the settings that differ from configs/base.py.

    With vLLM, also the addresses of running servers, or the version of vLLM.
    """
    sampler = _find_vllm(spec.config) if spec.config.rollout.backend == "vllm" else ""
    keys = [f"  {k} = {json.dumps(v)}" for k, v in config_changes(spec.config).items()]
    lines = [start_page(spec, workdir), *filter(None, [sampler])]
    return "\n".join([*lines, "config, where it differs from configs/base.py:", *keys])


def start_page(spec: RunSpec, workdir: pathlib.Path) -> str:
    """Returns text about the inputs, sizes and outputs of a run, with warnings."""
    c = spec.config
    dtype, adapted = c.model.dtype, c.model.lora.rank
    shapes, _ = lora.split(abstract_params(model_from_config(c, spec.model, None))[0])
    count = sum(x.size for x in jax.tree.leaves(shapes))
    group = max(in_stage(c, stage).rollout.group_size for stage in spec.stages)
    completions = c.batch.prompts_per_step * group
    tokens = completions * (c.rollout.max_prompt_tokens + c.rollout.max_response_tokens)
    dynamic = c.dynamic_sampling
    rounds = dynamic.max_rounds * dynamic.oversample if dynamic.filter else 1
    objective, updates = spec.objective, updates_per_step(c)
    reference = dtype if objective.keeps_reference else None
    nbytes = state_bytes(shapes, make_optimizer(c.optimizer), reference)
    lines = {
        "devices": describe_devices(),
        "model": f"{c.model.path or c.model.maker}"
        f" ({parameter_count(spec.model):,} parameters)",
        "adapters": f"{count:,} parameters of rank {adapted}; the base is frozen, in"
        f" {dtype}"
        if adapted
        else "",
        "precision": describe_precision(c),
        "mesh": "data {} x fsdp {} x tensor {}".format(*spec.mesh_shape),
        "trained on per step": f"{completions:,} completions, at most {tokens:,}"
        " tokens",
        "sampled per step": f"at most {int(rounds * completions):,} completions",
        "updates per step": str(updates),
        "steps": f"{c.steps} ({c.steps * updates:,} updates)",
        "checkpoints": describe_cost(
            nbytes, keep=c.checkpoint.keep, folder=workdir / "checkpoints"
        ),
        "reference": f"{c.objective.reference or 'the base'} stays loaded, in {dtype}"
        if objective.needs_reference and (c.objective.reference or not adapted)
        else "",
        **{s.name: _describe_set(s) for s in (spec.train_set, *spec.held_out)},
        "evaluation": "" if spec.held_out else "none: config.data.eval is empty",
        "stages": "; ".join(spec.gaps),
        **_example(spec),
        "writes": f"{workdir}/: config.json manifest.json held_out.jsonl assets/"
        " metrics.jsonl samples.jsonl tensorboard/ profile/"
        " checkpoints/ dumps/ summary.json hf/"
        + (" adapter/" if adapted else "")
        + (f", {c.compiled}/" if c.compiled else ""),
    }
    width = max(map(len, lines))
    text = [f"{key:<{width}}  {value}" for key, value in lines.items() if value]
    held_out = [p for of_set in spec.held_out for p in of_set.problems]
    if near := [p for p in (*spec.train, *held_out) if p.meta.get("error")]:
        text.append(
            f"The column error of {len(near):,} problems is the tolerance of decimal"
            f" answers, such as {near[0].meta['error']!r} for {near[0].id!r}"
        )
    notes = [s.note for s in (spec.train_set, *spec.held_out)]
    notes += describe_faults(spec.train, held_out)
    prompt = spec.decode_prompt(spec.train_set.prompts[0].tolist())
    notes.append(_unread_answers(c, prompt))
    text += [f"WARNING: {note}" for note in notes if note]
    needs, multiple = objective.needs_reference, spec.row_multiple
    text += settings_without_effect(c, needs_reference=needs, row_multiple=multiple)
    return "\n".join(text)


def _unread_answers(c: RunConfig, prompt: str) -> str:
    """Describes a prompt that asks for answers where the verifier does not look."""
    boxed = uses_verifier(c.reward.function, key=TRAINING)
    if not boxed or "<answer>" not in prompt or "\\boxed" in prompt:
        return ""
    return (
        f"config.data.template={c.data.template!r:.60} asks for <answer> tags, but the"
        " verifier reads only \\boxed{}; ask for a box, or set config.reward.function"
    )


def next_commands(workdir: pathlib.Path, c: RunConfig) -> str:
    """Returns the commands that a user may run after the end of a run."""
    reward, path = reward_formulas(c)[EVALUATION], ""
    samples = c.eval.samples if c.eval.temperature else 1
    options = "--benchmarks held_out --template run"
    options += f" --samples {samples} --temperature {c.eval.temperature:g}"
    if reward != VERIFIER:
        options += f" --reward {shlex.quote(reward)}"
        options += f" --right_from {c.reward.right_from:g}"
        # The config's folder, from which the run imported the reward.
        path = f"PYTHONPATH={shlex.quote(sys.path[0])} "
    folder, board, evaluation = (
        shlex.quote(str(workdir / name)) for name in ("", "tensorboard", "evaluation")
    )
    commands = [f"python -m tools.report {folder}", f"tensorboard --logdir {board}"]
    if c.data.eval:
        evaluate = f"{path}python -m tools.evaluate --model {folder} {options}"
        commands.append(f"{evaluate} --out {evaluation}")
    return "\n  ".join(["next:", *commands])


def config_changes(c: RunConfig) -> dict[str, object]:
    return changes(json.loads(config_json(c)))


def describe_devices() -> str:
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    memory = f"{limit / 1e9:.0f} GB each" if limit else "unknown memory"
    if device.platform == "cpu":
        cores = usable_cores()
        host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = f"{host / 1e9:.0f} GB of host memory on {cores} cores"
    hosts = f", {jax.process_count()} processes" if jax.process_count() > 1 else ""
    return (
        f"{device.platform}: {jax.device_count()} x {device.device_kind}, {memory}"
        f"{hosts}; jax {jax.__version__}"
    )


def describe_precision(c: RunConfig) -> str:
    how = f" (config.model.matmul_precision={c.model.matmul_precision!r})"
    computes = f"computes in {c.model.dtype}{how if c.model.dtype == 'float32' else ''}"
    if c.deterministic or jax.devices()[0].platform != "gpu":
        return f"{computes}; repeated runs give equal results"
    return (
        f"{computes}; repeated runs give slightly different results on a GPU unless"
        " config.deterministic=True"
    )


def _describe_set(of_set: ProblemSet) -> str:
    text = f"{of_set.source}: {of_set.rows:,} rows, {len(of_set.problems):,} used"
    if not of_set.left_out:
        return text
    return (
        f"{text}; left out: {of_set.too_long:,} longer than"
        f" config.rollout.max_prompt_tokens, {of_set.left_out - of_set.too_long:,} with"
        " an unreadable gold or prompt"
    )


def _example(spec: RunSpec) -> dict[str, str]:
    """Describes the first prompt, its gold, and rewards of a right and wrong answer."""

    def quoted(*ids: int) -> str:
        return json.dumps(spec.decode_prompt(ids), ensure_ascii=False)

    problem = spec.train[0]
    ids = spec.train_set.prompts[0].tolist()
    prompt, gold = spec.decode_prompt(ids), problem.answers[0]
    if len(prompt) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        prompt = f"{prompt[:half]} [...] {prompt[-half:]}"
    tokens = [*map(quoted, ids)]
    if len(tokens) > _MOST_TOKENS:
        tokens[_MOST_TOKENS - 8 : -8] = ["..."]
    wrong = str(int(gold) + 1) if re.fullmatch(r"-?\d{1,18}", gold) else "0"
    after = spec.config.reward.after
    answers = [rf"{after}\boxed{{{text}}}" for text in (gold, wrong)]
    with contextlib.closing(spec.open_rewards(workers=1)) as judges:
        ((right, other),) = judges.reward(TRAINING)([answers], [problem])
    rewards = [
        f"{answer} {'not judged' if math.isnan(r) else f'{r:g}'}"
        for answer, r in zip(answers, (right.reward, other.reward), strict=True)
    ]
    if right.reward == other.reward:
        rewards[-1] += (
            " (equal rewards: are both right, or does the reward function not read"
            " \\boxed{}?)"
        )
    elif right.verdict.correct is False:
        rewards[0] += (
            " (counts as wrong: below config.reward.right_from="
            f"{spec.config.reward.right_from:g})"
        )
    return {
        "first prompt": json.dumps(prompt, ensure_ascii=False),
        "as tokens": f"{len(ids):,}: {' '.join(tokens)}",
        "stop tokens": " ".join(map(quoted, spec.stop_token_ids)),
        "its gold": json.dumps(gold, ensure_ascii=False),
        "rewards": "; ".join(rewards),
    }


def _find_vllm(c: RunConfig) -> str:
    """Returns a line with the addresses of running vLLM servers, or vLLM's version."""
    v = c.rollout.vllm
    urls = [url.strip() for url in v.url.split(",") if url.strip()]
    for url in urls:
        if not VllmClient(url, api_key=api_key()).healthy():
            raise ValueError(
                f"config.rollout.vllm.url={url!r}: no vLLM server answers; start the"
                " server or correct the address"
            )
    if urls:
        return f"vLLM: {', '.join(urls)} answers"
    command = [v.python, "-c", _VLLM]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = str(error)
        if isinstance(error, subprocess.CalledProcessError):
            output = error.stderr.strip() or output
        reason = output.splitlines()[-1]
        raise ValueError(
            f"config.rollout.vllm.python={v.python!r}: cannot import vLLM ({reason});"
            " run `make vllm`, or set config.rollout.vllm.url to the servers' URLs"
        ) from None
    return f"vLLM: {done.stdout.strip()} in {v.python}"
