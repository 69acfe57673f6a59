"""A config, checked: all that can be wrong is found before any expensive work.

`rl.build` makes the loop's objects of a `Plan`.
"""

import dataclasses
import inspect
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tqdm
from ml_collections import ConfigDict

from models import attention, hf
from models.config import Qwen2Config
from models.qwen2 import REMAT_POLICIES, Qwen2, abstract_params, param_shardings
from rl.collect import ON_SHORTFALL
from rl.curriculum import Curriculum, Stage, make_stages
from rl.data import load_function, load_problems
from rl.devices import start_cpu_devices
from rl.groups import ADVANTAGES, AGGREGATIONS
from rl.objective import CORRECTIONS
from rl.overlap import SCHEDULES
from rl.reward import custom_reward
from rl.templates import check_template, encode_prompt
from rl.tokenizer import AutoTokenizer, PreTrainedTokenizerBase
from rl.types import Problem
from sharding.mesh import AXES, resolve_shape

_TYPES = {int: int, float: (int, float), str: str, bool: bool}


def start_devices(config: ConfigDict) -> None:
    """Must come before JAX is first used; see `rl.devices`."""
    rows = config.batch.micro_tokens // max(config.batch.row_lengths)
    start_cpu_devices(config.mesh.cpu_devices, rows=max(1, rows))
    if config.compiled:
        jax.config.update("jax_compilation_cache_dir", str(config.compiled))


def call(function: Callable, name: str, section: Mapping[str, Any], **others) -> Any:
    """Calls `function` with a section of the config; its signature is the schema.

    Raises:
      ValueError: a key that it does not take, one that it misses, or a wrong type.
    """
    parameters = inspect.signature(function).parameters
    for key, value in section.items():
        if key not in parameters:
            raise ValueError(f"config.{name}.{key}: unknown key")
        wanted = _TYPES.get(parameters[key].annotation)
        if wanted and (
            not isinstance(value, wanted)
            or (isinstance(value, bool) and wanted is not bool)
        ):
            kind = parameters[key].annotation.__name__
            raise ValueError(f"config.{name}.{key}={value!r}: must be of type {kind}")
    for key, parameter in parameters.items():
        missing = parameter.default is inspect.Parameter.empty
        if missing and key not in section and key not in others:
            raise ValueError(f"config.{name}.{key}: missing")
    return function(**section, **others)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A run, checked and not begun.

    Attributes:
      config: resolved.
      folder: of the base model; its weights may still have to be made.
      model: the architecture.
      tokenizer: the model's own.
      stop_token_ids: all that end a completion.
      train, held_out: problems whose prompts fit.
      prompts: token ids by problem id, template applied.
      left_out: problems whose prompts are too long.
      mesh_shape: data, fsdp, tensor.
      stages: of the curriculum; a single one where the config gives none.
    """

    config: ConfigDict
    folder: pathlib.Path
    model: Qwen2Config
    tokenizer: PreTrainedTokenizerBase
    stop_token_ids: tuple[int, ...]
    train: Sequence[Problem]
    held_out: Sequence[Problem]
    prompts: Mapping[str, np.ndarray]
    left_out: int
    mesh_shape: tuple[int, int, int]
    stages: tuple[Stage, ...]

    @property
    def updates_per_step(self) -> int:
        u = self.config.batch
        return u.ppo_epochs * u.prompts_per_step // u.prompts_per_update

    def decode(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(token_ids, skip_special_tokens=True)

    def encode(self, problem: Problem) -> np.ndarray:
        return self.prompts[problem.id]

    def describe(self, workdir: pathlib.Path) -> str:
        """What `--dry_run` prints."""
        c = self.config
        shapes, _ = abstract_params(Qwen2(self.model))
        count = sum(x.size for x in jax.tree.leaves(shapes))
        completions = c.batch.prompts_per_step * c.rollout.group_size
        tokens = completions * (
            c.rollout.max_prompt_tokens + c.rollout.max_response_tokens
        )
        lines = {
            "model": f"{self.folder} ({count:,} parameters)",
            "mesh": "data {} x fsdp {} x tensor {}".format(*self.mesh_shape),
            "completions per step": f"{completions:,}",
            "tokens per step": f"{tokens:,} at most",
            "updates per step": str(self.updates_per_step),
            "steps": f"{c.steps} ({c.steps * self.updates_per_step:,} updates)",
            "reads": f"{c.data.train} ({len(self.train):,} problems,"
            f" {self.left_out:,} too long), {c.data.eval or 'no evaluation'}"
            f" ({len(self.held_out):,} problems)",
            "writes": f"{workdir}/: config.json metrics.jsonl samples.jsonl"
            " summary.json tensorboard/ checkpoints/ hf/",
        }
        width = max(map(len, lines))
        text = "\n".join(f"{key:<{width}}  {value}" for key, value in lines.items())
        return f"{config_json(c)}\n{text}"


def config_json(config: ConfigDict) -> str:
    return json.dumps(config.to_dict(), indent=2, sort_keys=True)


def check_same(config: ConfigDict, of_leader: str) -> None:
    """Holds this process's config to the leader's, given as JSON.

    Raises:
      ValueError: they differ; names the first key that does.
    """
    own, other = _flat(json.loads(config_json(config))), _flat(json.loads(of_leader))
    for key in sorted(own.keys() | other.keys()):
        if own.get(key) != other.get(key):
            raise ValueError(
                f"config.{key}={own.get(key)!r}: the leader has {other.get(key)!r}"
            )


def _flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            leaves |= _flat(value, f"{above}{key}.")
        else:
            leaves[above + key] = value
    return leaves


def make_plan(config: ConfigDict) -> Plan:
    """Checks a config against the model, the data and the devices.

    Raises:
      ValueError: one line that names the key or file and the offending value.
    """
    _check_choices(config)
    mesh_shape = resolve_shape(jax.device_count(), **mesh_sizes(config))
    _check_sizes(config, mesh_shape)
    folder = model_folder(config, weights=False)
    model = Qwen2Config.from_folder(folder)
    _check_positions(config, model)
    shape = {"data": mesh_shape[0], "fsdp": mesh_shape[1], "tensor": mesh_shape[2]}
    param_shardings(
        Qwen2(model), jax.sharding.AbstractMesh(tuple(shape.values()), tuple(shape))
    )
    tokenizer = load_tokenizer(folder)
    stop = tuple(config.rollout.stop_token_ids) or default_stop_ids(folder, tokenizer)
    if config.reward.function:
        custom_reward(config.reward.function)
    d = config.data
    train = load_problems(
        d.train, key="config.data.train", fields=d.fields, **d.train_args
    )
    held_out = (
        load_problems(d.eval, key="config.data.eval", fields=d.fields, **d.eval_args)
        if d.eval
        else []
    )
    limit = config.rollout.max_prompt_tokens
    prompts = encode_all(tokenizer, d.template, [*train, *held_out])
    kept = [p for p in train if len(prompts[p.id]) <= limit]
    if not kept:
        raise ValueError(
            f"config.rollout.max_prompt_tokens={limit}: no prompt of {d.train} fits"
        )
    held_out_kept = [p for p in held_out if len(prompts[p.id]) <= limit]
    return Plan(
        config=config,
        folder=folder,
        model=model,
        tokenizer=tokenizer,
        stop_token_ids=stop,
        train=kept,
        held_out=held_out_kept,
        prompts=prompts,
        left_out=len(train) + len(held_out) - len(kept) - len(held_out_kept),
        mesh_shape=mesh_shape,
        stages=_stages(config, kept),
    )


def _stages(c: ConfigDict, problems: Sequence[Problem]) -> tuple[Stage, ...]:
    """The curriculum's stages, checked against the problems and the run's sizes."""
    try:
        stages = make_stages(c.curriculum.stages)
        Curriculum(stages, problems, seed=c.seed)
        for i, stage in enumerate(stages):
            longest, asked = c.rollout.max_response_tokens, stage.max_response_tokens
            if asked is not None and asked > longest:
                raise ValueError(
                    f"[{i}].max_response_tokens={asked}: exceeds"
                    f" config.rollout.max_response_tokens={longest}"
                )
    except ValueError as error:
        raise ValueError(f"config.curriculum.stages{error}") from None
    return stages


def _check_choices(c: ConfigDict) -> None:
    choices = {
        "model.remat": REMAT_POLICIES,
        "model.attention": ("auto", *attention.IMPLEMENTATIONS),
        "model.dtype": hf.DTYPES,
        "model.param_dtype": hf.DTYPES,
        "export.dtype": hf.DTYPES,
        "objective.aggregation": AGGREGATIONS,
        "objective.advantage": ADVANTAGES,
        "objective.correction": CORRECTIONS,
        "dynamic_sampling.on_shortfall": ON_SHORTFALL,
        "rollout.backend": ("jax", "vllm"),
        "rollout.schedule": SCHEDULES,
    }
    for key, allowed in choices.items():
        section, name = key.split(".")
        if c[section][name] not in allowed:
            raise ValueError(
                f"config.{key}={c[section][name]!r}: must be one of {sorted(allowed)}"
            )
    if c.rollout.schedule != "sync" and c.rollout.backend == "jax":
        raise ValueError(
            f"config.rollout.schedule={c.rollout.schedule!r}: the embedded sampler"
            " shares its devices with the update; set rollout.backend='vllm'"
        )
    implementation = attention_implementation(c)
    if c.batch.share_prompts and implementation not in attention.SHARES_PREFIXES:
        raise ValueError(
            f"config.batch.share_prompts=True: config.model.attention="
            f"{implementation!r} knows no shared prompts; set it to 'xla'"
        )
    if bool(c.model.path) == bool(c.model.maker):
        raise ValueError(
            f"config.model.path={c.model.path!r}, config.model.maker="
            f"{c.model.maker!r}: give one of the two"
        )
    if not c.data.train:
        raise ValueError("config.data.train='': give files or a function")
    try:
        check_template(c.data.template)
    except ValueError as error:
        raise ValueError(f"config.data.{error}") from None
    if c.rollout.top_p != 1:
        raise ValueError(
            f"config.rollout.top_p={c.rollout.top_p}: training needs 1, the trainer"
            " does not renormalise"
        )
    if not c.rollout.temperature > 0:
        raise ValueError(
            f"config.rollout.temperature={c.rollout.temperature}: must be above 0"
        )


def _check_sizes(c: ConfigDict, mesh_shape: tuple[int, int, int]) -> None:
    u, r = c.batch, c.rollout
    if r.group_size < 2:
        raise ValueError(
            f"config.rollout.group_size={r.group_size}: a group needs at least 2"
        )
    if u.prompts_per_step % u.prompts_per_update:
        raise ValueError(
            f"config.batch.prompts_per_step={u.prompts_per_step} is no multiple of"
            f" config.batch.prompts_per_update={u.prompts_per_update}"
        )
    longest = r.max_prompt_tokens + r.max_response_tokens
    if max(u.row_lengths) < longest:
        raise ValueError(
            f"config.batch.row_lengths={tuple(u.row_lengths)}: no row holds"
            f" rollout.max_prompt_tokens={r.max_prompt_tokens} +"
            f" rollout.max_response_tokens={r.max_response_tokens} tokens"
        )
    devices = mesh_shape[0] * mesh_shape[1]
    if u.micro_tokens < max(u.row_lengths) * devices:
        raise ValueError(
            f"config.batch.micro_tokens={u.micro_tokens}: less than one row of"
            f" {max(u.row_lengths)} tokens on each of {devices} devices"
        )


def _check_positions(c: ConfigDict, model: Qwen2Config) -> None:
    r = c.rollout
    if r.max_prompt_tokens + r.max_response_tokens > model.max_positions:
        raise ValueError(
            f"config.rollout.max_prompt_tokens={r.max_prompt_tokens} +"
            f" config.rollout.max_response_tokens={r.max_response_tokens} exceed the"
            f" model's max_position_embeddings={model.max_positions}"
        )


def attention_implementation(config: ConfigDict) -> str:
    """What `config.model.attention` names; "auto" is the platform's own."""
    name = config.model.attention
    return attention.default_implementation() if name == "auto" else name


def mesh_sizes(config: ConfigDict) -> dict[str, int]:
    return {axis: config.mesh[axis] for axis in AXES}


def model_folder(config: ConfigDict, *, weights: bool) -> pathlib.Path:
    """The base model's folder, made or downloaded where that is asked for."""
    m = config.model
    if m.maker:
        maker = load_function(m.maker, key="config.model.maker")
        return call(maker, "model.maker_args", m.maker_args, weights=weights)
    try:
        return hf.resolve_folder(m.path)
    except ValueError as error:
        raise ValueError(f"config.model.path={error}") from None


def load_tokenizer(folder: pathlib.Path) -> PreTrainedTokenizerBase:
    """The folder's own tokenizer."""
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{folder}: no usable tokenizer ({reason})") from None


def default_stop_ids(
    folder: pathlib.Path, tokenizer: PreTrainedTokenizerBase
) -> tuple[int, ...]:
    """The ids that end a text of this model.

    Those of `generation_config.json` and the tokenizer, and where the vocabulary is
    Qwen's both of its end tokens: a base model may use either.
    """
    ids = {tokenizer.eos_token_id}
    path = folder / "generation_config.json"
    if path.is_file():
        stated = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        ids |= set(stated if isinstance(stated, list) else [stated])
    vocabulary = tokenizer.get_vocab()
    ids |= {vocabulary.get(token) for token in ("<|endoftext|>", "<|im_end|>")}
    return tuple(sorted(ids - {None}))


def encode_all(
    tokenizer: PreTrainedTokenizerBase, template: str, problems: Sequence[Problem]
) -> dict[str, np.ndarray]:
    """Prompts by problem id."""
    progress = tqdm.tqdm(
        problems, desc="encoding prompts", mininterval=2, delay=5, leave=False
    )
    return {
        p.id: np.asarray(encode_prompt(tokenizer, template, p.problem), np.int32)
        for p in progress
    }
