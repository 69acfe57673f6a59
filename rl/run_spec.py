"""A run that has been checked: everything that can be wrong before expensive work.

`rl.setup` makes the objects of the loop from a `RunSpec`.
"""

import dataclasses
import pathlib
import tempfile
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from configs.base import RunConfig
from configs.checks import check_config, check_overlong
from models import hf
from models.config import DecoderConfig
from models.decoder import Decoder, param_shardings
from rl.base_model import base_folder
from rl.groups.advantages import load_advantage
from rl.groups.extra import load_extra_groups
from rl.metric_loggers import Maker, load_sinks
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
from rl.reward.golds import readable
from rl.reward.rewards import try_out, uses_verifier
from rl.types import Problem
from rl.update.objective import Objective, objective_from_config
from rl.update.optimizer import optimizer_from_config
from rl.update.rejection import load_rejection
from rollout.types import SamplingParams
from sharding.mesh import abstract_mesh, resolve_shape
from sharding.rules import shards

TRAINING, EVALUATION = "config.reward.function", "config.eval.reward"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run, checked but not started.

    Attributes:
      config: with all values resolved.
      model: the architecture.
      tokenizer: the model's own.
      sampling: how completions for training are sampled.
      train, held_out: problems whose prompts fit.
      prompts: token ids by problem text, template applied.
      left_out: number of problems whose prompts are too long.
      unread: messages about problems left out because of unreadable golds.
      mesh_shape: sizes of data, fsdp and tensor.
      stages: of the curriculum; a single one where the config gives none.
      gaps: messages about levels without problems, whose share others take.
      objective: what the updates minimize.
      sinks: additional metric loggers, by name.
    """

    config: RunConfig
    model: DecoderConfig
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
    objective: Objective
    sinks: Mapping[str, Maker]

    @property
    def updates_per_step(self) -> int:
        b = self.config.batch
        return b.ppo_epochs * b.prompts_per_step // b.prompts_per_update

    @property
    def row_multiple(self) -> int:
        """Return the number of devices that share the rows of a batch."""
        return shards("batch", abstract_mesh(self.mesh_shape))

    @property
    def rewards(self) -> Mapping[str, str]:
        """Return the formulas of the rewards, by config key."""
        return _reward_formulas(self.config)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def tokenize(self, text: str) -> list[int]:
        """Return a completion's token ids, its end included."""
        end = self.tokenizer.eos_token_id
        if end not in self.sampling.stop_token_ids:
            end = self.sampling.stop_token_ids[0]
        return [*self.tokenizer.encode(text, add_special_tokens=False), end]

    def encode(self, problem: Problem) -> np.ndarray:
        return self.prompts[problem.problem]


def validate(c: RunConfig) -> RunSpec:
    """Check a config against the model, the data and the devices.

    Raises:
      ValueError: one line that names the key or file and the value.
    """
    check_config(c)
    try:
        check_template(c.data.template)
    except ValueError as error:
        raise ValueError(f"config.data.{error}") from None
    objective = objective_from_config(c)
    load_advantage(c.objective.advantage)
    load_rejection(c.objective.correction)
    load_extra_groups(c.rollout.extra_groups)
    optimizer_from_config(c)
    sinks = load_sinks(sinks=c.log.sinks)
    problems, held_out, unread = read_data(c)
    mesh_shape = resolve_shape(
        jax.device_count(), data=c.mesh.data, fsdp=c.mesh.fsdp, tensor=c.mesh.tensor
    )
    check_sizes(c, mesh_shape)
    with tempfile.TemporaryDirectory() as scratch:
        folder = base_folder(c, described_in=pathlib.Path(scratch))
        model = DecoderConfig.from_folder(folder)
        tokenizer = load_tokenizer(folder)
        check_reference(c, objective, model, tokenizer)
        stop_ids = c.rollout.stop_token_ids or default_stop_ids(folder, tokenizer)
    check_positions(c, model)
    param_shardings(Decoder(model), abstract_mesh(mesh_shape))
    prompts, (train, held_out), left_out = encode_all(
        tokenizer,
        problems=(problems, held_out),
        template=c.data.template,
        max_prompt_tokens=c.rollout.max_prompt_tokens,
    )
    stages, gaps = _stages(c, problems, train)
    return RunSpec(
        config=c,
        model=model,
        tokenizer=tokenizer,
        sampling=SamplingParams(
            n=c.rollout.group_size,
            max_tokens=c.rollout.max_response_tokens,
            temperature=c.rollout.temperature,
            stop_token_ids=tuple(stop_ids),
        ),
        train=train,
        held_out=held_out,
        prompts=prompts,
        left_out=left_out,
        unread=unread,
        mesh_shape=mesh_shape,
        stages=stages,
        gaps=gaps,
        objective=objective,
        sinks=sinks,
    )


def reference_model(
    c: RunConfig, *, described_in: pathlib.Path | None = None
) -> tuple[pathlib.Path, DecoderConfig]:
    """Return the folder and the architecture of `objective.reference`."""
    try:
        folder = hf.resolve_folder(c.objective.reference, described_in=described_in)
    except ValueError as error:
        raise ValueError(f"config.objective.reference={error}") from None
    return folder, DecoderConfig.from_folder(folder)


def check_reference(
    c: RunConfig,
    objective: Objective,
    model: DecoderConfig,
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Reject a reference that does not read the policy's tokens.

    Raises:
      ValueError: one line that names the key.
    """
    if not c.objective.reference or not objective.needs_reference:
        return
    key = f"config.objective.reference={c.objective.reference!r}"
    with tempfile.TemporaryDirectory() as scratch:
        folder, own = reference_model(c, described_in=pathlib.Path(scratch))
        if load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
            raise ValueError(f"{key}: its tokenizer is not the base's")
    if c.objective.reset_every and own != model:
        raise ValueError(
            f"{key}: its architecture is not the base's, and the policy cannot replace"
            f" it; set config.objective.reset_every={c.objective.reset_every} to 0"
        )


def check_sizes(c: RunConfig, mesh_shape: tuple[int, int, int]) -> None:
    """Reject micro-batches that do not give every device a row.

    Raises:
      ValueError: one line that names the key.
    """
    devices = shards("batch", abstract_mesh(mesh_shape))
    longest = max(c.batch.row_lengths)
    if c.batch.micro_tokens < longest * devices:
        raise ValueError(
            f"config.batch.micro_tokens={c.batch.micro_tokens}: less than one row of"
            f" {longest} tokens on each of {devices} devices"
        )


def check_positions(c: RunConfig, model: DecoderConfig) -> None:
    """Reject prompts and completions that are longer than the model's positions.

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


def read_data(
    c: RunConfig,
) -> tuple[list[Problem], list[Problem], tuple[str, ...]]:
    """Read the problems to train on and those held out, and try the rewards out.

    The leader alone calls the user's rewards on the first problem: a reward may ask a
    service, and hundreds of processes need not.

    Returns:
      Both sets without the problems whose gold cannot be read, and a message for each
      set that lost some.

    Raises:
      ValueError: a problem, a gold or a reward that is wrong; one line that names it.
    """
    d, formulas = c.data, _reward_formulas(c)
    sets = [
        load_problems(where, key=key, fields=d.fields, **arguments) if where else []
        for where, key, arguments in (
            (d.train, "config.data.train", d.train_args),
            (d.eval, "config.data.eval", d.eval_args),
        )
    ]
    if jax.process_index() == 0:
        try_out(
            formulas,
            sets[0][0],
            timeout=c.reward.timeout,
            right_from=c.reward.right_from,
        )
    messages = []
    for i, (key, where) in enumerate(((TRAINING, d.train), (EVALUATION, d.eval))):
        if sets[i] and uses_verifier(formulas[key], key=key):
            sets[i], message = readable(
                sets[i],
                where=where,
                workers=c.reward.workers,
                timeout=c.reward.timeout,
                unreadable_golds=d.unreadable_golds,
            )
            messages.append(message)
    return sets[0], sets[1], tuple(filter(None, messages))


def _reward_formulas(c: RunConfig) -> Mapping[str, str]:
    return {
        TRAINING: c.reward.function,
        EVALUATION: c.eval.reward or c.reward.function,
    }


def _stages(
    c: RunConfig, every: Sequence[Problem], fit: Sequence[Problem]
) -> tuple[tuple[Stage, ...], list[str]]:
    """Make the curriculum's stages and check them against the run's sizes.

    Args:
      c: the config.
      every: all problems.
      fit: those whose prompts fit.

    Returns:
      The stages, and a message about each share of a level that another one takes.
    """
    r = c.rollout
    try:
        stages, gaps = fill_gaps(make_stages(c.curriculum.stages), every)
        try:
            Curriculum(stages, fit, seed=c.seed)
        except NoProblem as error:
            # The level is gone with the prompts that are too long.
            raise ValueError(
                f"{error} whose prompt fits"
                f" config.rollout.max_prompt_tokens={r.max_prompt_tokens}:"
                f" {len(every) - len(fit):,} prompts do not"
            ) from None
        for i, stage in enumerate(stages):
            longest = stage.max_response_tokens or r.max_response_tokens
            if longest > r.max_response_tokens:
                raise ValueError(
                    f"[{i}].max_response_tokens={longest}: exceeds"
                    f" config.rollout.max_response_tokens={r.max_response_tokens}"
                )
            try:
                check_overlong(c, longest)
            except ValueError as error:
                raise ValueError(f"[{i}]: {error}") from None
    except ValueError as error:
        raise ValueError(f"config.curriculum.stages{error}") from None
    return stages, gaps
