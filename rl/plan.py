"""A config, checked: all that can be wrong is found before any expensive work.

`rl.build` makes the loop's objects of a `Plan`.
"""

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from configs.base import from_config
from configs.base import get_config as defaults
from configs.schema import (
    Count,
    Index,
    NotNegative,
    Positive,
    Range,
    call,
    changes,
    config_json,
    take,
)
from models.config import Qwen2Config
from models.qwen2 import Qwen2, abstract_params, param_shardings
from rl.base_model import find_model, parameter_count
from rl.batches.advantages import load_advantage
from rl.batches.draws import Policy
from rl.batches.groups import FilterOn
from rl.batches.schedule import Schedule
from rl.checkpoint import describe_cost, state_bytes
from rl.problems.curriculum import (
    Curriculum,
    NoProblem,
    Stage,
    fill_gaps,
    make_stages,
)
from rl.problems.reading import load_problems
from rl.problems.templates import check_template, encode_all
from rl.problems.tokenizer import (
    PreTrainedTokenizerBase,
    default_stop_ids,
    load_tokenizer,
)
from rl.processes.devices import (
    make_deterministic,
    set_precision,
    start_cpu_devices,
    take_gpu_memory,
)
from rl.reward.golds import readable
from rl.reward.rewards import try_out, uses_verifier
from rl.types import Problem
from rl.update.objective import make_objective
from rl.update.optimizer import make_optimizer, make_schedule
from rl.workdir.sinks import Maker, load_sinks
from rl.workdir.trace import check_steps
from rollout.types import SamplingParams
from sharding.mesh import abstract_mesh, resolve_shape
from sharding.rules import shards

Backend = Literal["jax", "vllm"]
TRAINING, EVALUATION = "config.reward.function", "config.eval.reward"


def start_devices(config: ConfigDict, workdir: pathlib.Path | None = None) -> None:
    """Must come before JAX is first used; see `rl.processes.devices`.

    Args:
      config: of the run.
      workdir: where a deterministic run keeps XLA's choices; None: nowhere.

    Raises:
      ValueError: a key or value that `from_config` refuses.
    """
    checked = from_config(config)
    if checked.model.dtype == "float32":
        set_precision(checked.model.matmul_precision)
    if checked.deterministic:
        make_deterministic(workdir)
    batch = checked.batch
    rows = batch.micro_tokens // max(batch.row_lengths)
    take_gpu_memory()
    start_cpu_devices(config.mesh.cpu_devices, rows=max(1, rows))


def keep_programs(*, compiled: str) -> None:
    """Keeps compiled programs in a folder, from start to start."""
    if compiled:
        jax.config.update("jax_compilation_cache_dir", compiled)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A run, checked and not begun.

    Attributes:
      config: resolved.
      model: the architecture.
      tokenizer: the model's own.
      sampling: how completions are drawn that are trained on.
      train, held_out: problems whose prompts fit.
      prompts: token ids by problem text, template applied.
      left_out: problems whose prompts are too long.
      unread: lines on problems left out for golds that the verifier cannot read.
      mesh_shape: data, fsdp, tensor.
      stages: of the curriculum; a single one where the config gives none.
      gaps: lines on levels that no problem has, and who took their share.
      needs_reference: whether the objective keeps the base model loaded.
      sinks: whoever else is told the run's figures, by name.
    """

    config: ConfigDict
    model: Qwen2Config
    tokenizer: PreTrainedTokenizerBase
    sampling: SamplingParams
    train: Sequence[Problem]
    held_out: Sequence[Problem]
    prompts: Mapping[str, np.ndarray]
    left_out: int
    unread: Sequence[str]
    mesh_shape: tuple[int, int, int]
    stages: tuple[Stage, ...]
    gaps: Sequence[str]
    needs_reference: bool
    sinks: Mapping[str, Maker]

    @property
    def updates_per_step(self) -> int:
        u = self.config.batch
        return u.ppo_epochs * u.prompts_per_step // u.prompts_per_update

    @property
    def row_multiple(self) -> int:
        """Devices that share the rows of a batch."""
        return shards("batch", abstract_mesh(self.mesh_shape))

    @property
    def changes(self) -> Mapping[str, Any]:
        """What the config says other than configs/base.py, by dotted key."""
        return changes(json.loads(config_json(self.config)), defaults())

    @property
    def rewards(self) -> Mapping[str, str]:
        """The formulas of the rewards, by key."""
        return reward_formulas(self.config)

    @property
    def numbers(self) -> str:
        """How exactly, and whether repeatably, accelerators compute."""
        c = self.config
        repeat = "deterministic" if c.deterministic else "not deterministic on a GPU"
        how = f" at matmul_precision={c.model.matmul_precision}"
        return f"{c.model.dtype}{how if c.model.dtype == 'float32' else ''}; {repeat}"

    def base(self) -> pathlib.Path:
        """The base model's folder with its weights, made or downloaded if not there."""
        return take(find_model, self.config.model)()

    def decode(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(token_ids, skip_special_tokens=True)

    def encode(self, problem: Problem) -> np.ndarray:
        return self.prompts[problem.problem]

    def describe(self, workdir: pathlib.Path) -> str:
        """What `--dry_run` prints."""
        c = self.config
        model = Qwen2(self.model, param_dtype=jnp.dtype(c.model.param_dtype))
        shapes, _ = abstract_params(model)
        count = parameter_count(self.model)
        group = max(stage.group_size or c.rollout.group_size for stage in self.stages)
        completions = c.batch.prompts_per_step * group
        tokens = completions * (
            c.rollout.max_prompt_tokens + c.rollout.max_response_tokens
        )
        sampling = c.dynamic_sampling
        often = sampling.max_rounds * sampling.oversample if sampling.filter else 1
        lines = {
            "model": f"{c.model.path or c.model.maker} ({count:,} parameters)",
            "numbers": self.numbers,
            "mesh": "data {} x fsdp {} x tensor {}".format(*self.mesh_shape),
            "trained on per step": f"{completions:,} completions, at most {tokens:,}"
            " tokens",
            "drawn per step": f"at most {int(often * completions):,} completions",
            "updates per step": str(self.updates_per_step),
            "steps": f"{c.steps} ({c.steps * self.updates_per_step:,} updates)",
            "checkpoints": describe_cost(
                state_bytes(shapes, call(make_optimizer, "optimizer", c.optimizer)),
                keep=c.checkpoint.keep,
                folder=workdir / "checkpoints",
            ),
            "reads": f"{c.data.train} ({len(self.train):,} problems,"
            f" {self.left_out:,} too long), {c.data.eval or 'no evaluation'}"
            f" ({len(self.held_out):,} problems)",
            **({"left out": "; ".join(self.unread)} if self.unread else {}),
            **({"stages": "; ".join(self.gaps)} if self.gaps else {}),
            **(
                {"reference": f"the base stays loaded, in {c.model.dtype}"}
                if self.needs_reference
                else {}
            ),
            "writes": f"{workdir}/: config.json manifest.json held_out.jsonl assets/"
            " metrics.jsonl samples.jsonl tokens.jsonl tensorboard/ profile/"
            " checkpoints/ dumps/ summary.json hf/"
            + (f", {c.compiled}/" if c.compiled else ""),
        }
        width = max(map(len, lines))
        text = "\n".join(f"{key:<{width}}  {value}" for key, value in lines.items())
        return f"{config_json(c)}\n{text}"


def make_plan(config: ConfigDict) -> Plan:
    """Checks a config against the model, the data and the devices.

    Raises:
      ValueError: one line that names the key or file and the offending value.
    """
    from_config(config)
    _check_together(config)
    train, held_out, unread = read_data(config)
    mesh_shape = take(resolve_shape, config.mesh)(jax.device_count())
    check_sizes(config, mesh_shape)
    r = config.rollout
    with tempfile.TemporaryDirectory() as scratch:
        folder = take(find_model, config.model)(described_in=pathlib.Path(scratch))
        model = Qwen2Config.from_folder(folder)
        tokenizer = load_tokenizer(folder)
        sampling = take(training_params, r)(
            default_stop_ids=default_stop_ids(folder, tokenizer)
        )
    check_positions(config, model)
    param_shardings(Qwen2(model), abstract_mesh(mesh_shape))
    objective = take(make_objective, config.objective)()
    load_advantage(config.objective.advantage)
    every = train
    prompts, (train, held_out), left_out = take(
        encode_all, config.data, config.rollout
    )(tokenizer, problems=(train, held_out))
    stages, gaps = _stages(config, every, train)
    return Plan(
        config=config,
        model=model,
        tokenizer=tokenizer,
        sampling=sampling,
        train=train,
        held_out=held_out,
        prompts=prompts,
        left_out=left_out,
        unread=unread,
        mesh_shape=mesh_shape,
        stages=stages,
        gaps=gaps,
        needs_reference=objective.needs_reference,
        sinks=take(load_sinks, config.log)(),
    )


def _stages(
    c: ConfigDict, every: Sequence[Problem], fit: Sequence[Problem]
) -> tuple[tuple[Stage, ...], list[str]]:
    """The curriculum's stages, fit to the problems and checked against the run's sizes.

    And a line on each share of a level that another one has to take.
    """
    try:
        stages, gaps = fill_gaps(make_stages(c.curriculum.stages), every)
        try:
            Curriculum(stages, fit, seed=c.seed)
        except NoProblem as error:
            # The level is gone with those that are too long.
            raise ValueError(
                f"{error} whose prompt fits"
                f" config.rollout.max_prompt_tokens={c.rollout.max_prompt_tokens}:"
                f" {len(every) - len(fit):,} prompts do not"
            ) from None
        for i, stage in enumerate(stages):
            longest, asked = c.rollout.max_response_tokens, stage.max_response_tokens
            if asked is not None and asked > longest:
                raise ValueError(
                    f"[{i}].max_response_tokens={asked}: exceeds"
                    f" config.rollout.max_response_tokens={longest}"
                )
            try:
                take(check_overlong, c.reward)(max_response_tokens=asked or longest)
            except ValueError as error:
                raise ValueError(f"[{i}]: {error}") from None
    except ValueError as error:
        raise ValueError(f"config.curriculum.stages{error}") from None
    return stages, gaps


def _check_together(c: ConfigDict) -> None:
    """What no signature can say, since it is about several keys."""
    if not c.data.train:
        raise ValueError("config.data.train='': give files or a function")
    try:
        check_template(c.data.template)
    except ValueError as error:
        raise ValueError(f"config.data.{error}") from None
    take(check_rollout, c.rollout)()
    take(check_sampling, c.sampling, c.dynamic_sampling, c.reward)()
    take(check_overlong, c.reward, c.rollout)()
    take(check_steps, c.profile)()
    try:
        make_optimizer(**c.optimizer)
        make_schedule(**c.schedule)
    except ValueError as error:
        raise ValueError(f"config.{error}") from None


def check_rollout(*, backend: Backend, schedule: Schedule, top_p: float) -> None:
    """Refuses what would train on other log-probabilities, or overlap on devices."""
    if top_p != 1:
        raise ValueError(
            f"config.rollout.top_p={top_p}: training needs 1, the trainer"
            " does not renormalise"
        )
    if schedule != "sync" and backend == "jax":
        raise ValueError(
            f"config.rollout.schedule={schedule!r}: the embedded sampler"
            " shares its devices with the update; set rollout.backend='vllm'"
        )


def check_sampling(
    *,
    policy: Policy,
    filter: bool,
    filter_on: FilterOn,
    carry: bool,
    max_age: Index,
    shuffle: bool,
) -> None:
    """Refuses what does not go together: draws, the filter, groups that are carried."""
    not_carried = {
        f"dynamic_sampling.max_age={max_age}": (
            max_age < 1,
            "what is carried is a step old",
        ),
        "reward.shuffle=True": (
            shuffle,
            "verdicts are dealt out among all of a round, and carried groups end one by"
            " one",
        ),
    }
    for key, (is_so, why) in not_carried.items():
        if carry and is_so:
            raise ValueError(
                f"config.{key}: {why}; change it, or set"
                " config.dynamic_sampling.carry=False"
            )
    if policy != "uniform" and (not filter or filter_on != "correct"):
        raise ValueError(
            f"config.sampling.policy={policy!r}: needs config.dynamic_sampling."
            f"filter=True and filter_on='correct', not {filter} and {filter_on!r}"
        )


def check_overlong(
    *, overlong_buffer: int, overlong_factor: float, max_response_tokens: int
) -> None:
    """Refuses a penalty that no length is free of, which says nothing of length."""
    if overlong_factor and overlong_buffer >= max_response_tokens:
        raise ValueError(
            f"config.reward.overlong_buffer={overlong_buffer}: must be less than the"
            f" {max_response_tokens} tokens that a completion may have"
        )


def training_params(
    *,
    group_size: Annotated[int, Range(2)],
    max_response_tokens: Count,
    temperature: Positive,
    stop_token_ids: Sequence[Index],
    default_stop_ids: Sequence[int],
) -> SamplingParams:
    """How completions are drawn that are trained on."""
    return SamplingParams(
        n=group_size,
        max_tokens=max_response_tokens,
        temperature=temperature,
        stop_token_ids=tuple(stop_token_ids or default_stop_ids),
    )


def evaluation_params(
    training: SamplingParams,
    *,
    samples: Count,
    temperature: NotNegative,
    top_p: Annotated[float, Range(0, 1, open=True)],
    greedy: bool,
) -> tuple[SamplingParams, SamplingParams | None]:
    """How held-out completions are drawn: sampled, and greedily besides if asked."""
    sampled = dataclasses.replace(
        training, n=samples, temperature=temperature, top_p=top_p
    )
    once = dataclasses.replace(training, n=1, temperature=0.0)
    return sampled, once if greedy else None


def due(step: int, *, every_steps: Index) -> bool:
    """Whether what comes every so many steps comes after this one; 0 never does."""
    return every_steps > 0 and step % every_steps == 0


def check_sizes(c: ConfigDict, mesh_shape: tuple[int, int, int]) -> None:
    """Refuses batches that do not divide, and rows that hold too little.

    Raises:
      ValueError: one line that names the keys.
    """
    u, r = c.batch, c.rollout
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
    devices = shards("batch", abstract_mesh(mesh_shape))
    if u.micro_tokens < max(u.row_lengths) * devices:
        raise ValueError(
            f"config.batch.micro_tokens={u.micro_tokens}: less than one row of"
            f" {max(u.row_lengths)} tokens on each of {devices} devices"
        )


def check_positions(c: ConfigDict, model: Qwen2Config) -> None:
    """Refuses prompts and completions longer than the model was made for.

    Raises:
      ValueError: one line that names the keys.
    """
    r = c.rollout
    if r.max_prompt_tokens + r.max_response_tokens > model.max_positions:
        raise ValueError(
            f"config.rollout.max_prompt_tokens={r.max_prompt_tokens} +"
            f" config.rollout.max_response_tokens={r.max_response_tokens} exceed the"
            f" model's max_position_embeddings={model.max_positions}"
        )


def load_data(
    *,
    train: str,
    train_args: Mapping[str, Any],
    eval: str,
    eval_args: Mapping[str, Any],
    fields: Mapping[str, str],
) -> tuple[list[Problem], list[Problem]]:
    """The problems to train on and those held out."""
    read = load_problems(train, key="config.data.train", fields=fields, **train_args)
    if not eval:
        return read, []
    return read, load_problems(eval, key="config.data.eval", fields=fields, **eval_args)


def read_data(
    config: ConfigDict,
) -> tuple[list[Problem], list[Problem], tuple[str, ...]]:
    """The problems to train on and those held out, as far as they can be judged.

    A reward of the user's is tried out on the first of them, by the leader alone: it
    may ask a service, which hundreds of processes need not.

    Returns:
      Both, and a line for each on what was left out.

    Raises:
      ValueError: a problem, a gold or a reward that is wrong; one line that names it.
    """
    formulas = reward_formulas(config)
    sets = take(load_data, config.data)()
    if jax.process_index() == 0:
        take(try_out, config.reward)(formulas, sets[0][0])
    told = []
    for i, (key, where) in enumerate(
        ((TRAINING, config.data.train), (EVALUATION, config.data.eval))
    ):
        if sets[i] and uses_verifier(formulas[key], key=key):
            check = take(readable, config.reward, config.data, where=where)
            sets[i][:], line = check(sets[i])
            told.append(line)
    return *sets, tuple(filter(None, told))


def reward_formulas(config: ConfigDict) -> Mapping[str, str]:
    """The formulas of the rewards, by key."""
    training = config.reward.function
    return {
        TRAINING: training,
        EVALUATION: take(evaluation_formula, config.eval)(training),
    }


def evaluation_formula(training: str, *, reward: str) -> str:
    """The reward that judges held-out problems: the run's own unless told otherwise."""
    return reward or training
