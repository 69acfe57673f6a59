"""What `--dry_run` prints: what the run reads, computes and writes."""

import json
import pathlib

import jax

from configs.base import RunConfig, get_config
from configs.checks import settings_without_effect
from configs.schema import changes, config_json
from models import lora
from models.decoder import abstract_params
from rl.base_model import lora_from_config, model_from_config, parameter_count
from rl.checkpoint import describe_cost, state_bytes
from rl.run_spec import RunSpec
from rl.update.optimizer import optimizer_from_config


def start_page(spec: RunSpec, workdir: pathlib.Path) -> str:
    """Return the facts of a run, one a line, then its config."""
    c = spec.config
    shapes, _ = lora.split(abstract_params(model_from_config(c, spec.model, None))[0])
    count = sum(x.size for x in jax.tree.leaves(shapes))
    group = max(stage.group_size or c.rollout.group_size for stage in spec.stages)
    completions = c.batch.prompts_per_step * group
    tokens = completions * (c.rollout.max_prompt_tokens + c.rollout.max_response_tokens)
    dynamic = c.dynamic_sampling
    rounds = dynamic.max_rounds * dynamic.oversample if dynamic.filter else 1
    lines = {
        "model": f"{c.model.path or c.model.maker}"
        f" ({parameter_count(spec.model):,} parameters)",
        "adapters": f"{count:,} parameters of rank {c.model.lora.rank}; the base is"
        f" frozen, in {c.model.dtype}"
        if lora_from_config(c)
        else "",
        "numbers": describe_numbers(c),
        "mesh": "data {} x fsdp {} x tensor {}".format(*spec.mesh_shape),
        "trained on per step": f"{completions:,} completions, at most {tokens:,}"
        " tokens",
        "sampled per step": f"at most {int(rounds * completions):,} completions",
        "updates per step": str(spec.updates_per_step),
        "steps": f"{c.steps} ({c.steps * spec.updates_per_step:,} updates)",
        "checkpoints": describe_cost(
            state_bytes(shapes, optimizer_from_config(c)),
            keep=c.checkpoint.keep,
            folder=workdir / "checkpoints",
        ),
        "reads": f"{c.data.train} ({len(spec.train):,} problems,"
        f" {spec.left_out:,} too long), {c.data.eval or 'no evaluation'}"
        f" ({len(spec.held_out):,} problems)",
        "left out": "; ".join(spec.unread),
        "stages": "; ".join(spec.gaps),
        "reference": f"{c.objective.reference or 'the base'} stays loaded, in"
        f" {c.model.dtype}"
        if spec.objective.needs_reference
        and (c.objective.reference or not lora_from_config(c))
        else "",
        "writes": f"{workdir}/: config.json manifest.json held_out.jsonl assets/"
        " metrics.jsonl samples.jsonl tokens.jsonl tensorboard/ profile/"
        " checkpoints/ dumps/ summary.json hf/"
        + (" adapter/" if lora_from_config(c) else "")
        + (f", {c.compiled}/" if c.compiled else ""),
    }
    width = max(map(len, lines))
    text = "\n".join(
        [f"{k:<{width}}  {v}" for k, v in lines.items() if v]
        + settings_without_effect(c, needs_reference=spec.objective.needs_reference)
    )
    return f"{config_json(c)}\n{text}"


def start_messages(spec: RunSpec) -> list[str]:
    """Return what the user should know when the run starts."""
    messages = [f"numbers: {describe_numbers(spec.config)}", *spec.unread]
    if spec.left_out:
        most = spec.config.rollout.max_prompt_tokens
        messages.append(
            f"{spec.left_out:,} problems left out: their prompts exceed"
            f" config.rollout.max_prompt_tokens={most}"
        )
    messages += settings_without_effect(
        spec.config, needs_reference=spec.objective.needs_reference
    )
    return messages + [f"curriculum: stage {gap}" for gap in spec.gaps]


def config_changes(c: RunConfig) -> dict[str, object]:
    """Return what a config changes from configs/base.py, by dotted key."""
    return changes(json.loads(config_json(c)), get_config())


def describe_numbers(c: RunConfig) -> str:
    """Say how exactly, and whether repeatably, accelerators compute."""
    repeat = "deterministic" if c.deterministic else "not deterministic on a GPU"
    how = f" at matmul_precision={c.model.matmul_precision}"
    return f"{c.model.dtype}{how if c.model.dtype == 'float32' else ''}; {repeat}"
