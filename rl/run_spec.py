"""Checks a run before any expensive work, and describes it by a `RunSpec`.

`rl.setup` makes the objects of the training loop from a `RunSpec`.
"""

import contextlib
import dataclasses
import functools
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from configs.base import Data, RunConfig, Stage
from configs.checks import check_config
from models.config import DecoderConfig
from models.decoder import Decoder, param_shardings
from models.hf import open_weights
from rl.base_model import base_folder, model_folder
from rl.groups.advantages import load_advantage
from rl.groups.curriculum import Curriculum, NoProblem, fill_gaps
from rl.groups.extra import load_extra_groups
from rl.metric_loggers import Maker, load_sinks
from rl.problems.audit import unreadable_golds
from rl.problems.reading import load_problems
from rl.problems.templates import check_template, decode_completion, encode_prompt
from rl.problems.tokenizer import (
    Tokenizer,
    UnreadableText,
    check_ids,
    default_stop_ids,
    load_tokenizer,
)
from rl.progress import each
from rl.reward.rewards import Rewards, try_out, uses_verifier
from rl.types import Problem
from rl.update.objective import Objective, objective_from_config
from rl.update.optimizer import ADAMW, check_descends, make_optimizer
from rl.update.rejection import make_rejection
from rollout.layout import check_tensor
from sharding.mesh import abstract_mesh, all_devices, resolve_shape
from sharding.rules import shards

TRAINING, EVALUATION = "config.reward.function", "config.eval.reward"


class _Source(NamedTuple):
    """Describes where the problems of one set are read from."""

    name: str  # see `ProblemSet`
    key: str
    text: str  # files or function, as written in the config
    arguments: Mapping[str, Any]  # of the function


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSet:
    name: str  # "train", "held-out", or the set's key in `data.eval`
    source: str  # files or function, as written in the config
    rows: int  # number of problems in the source
    problems: Sequence[Problem]  # the usable ones
    prompts: Sequence[np.ndarray]  # int32 [P] of each problem, template applied
    too_long: int = 0  # number of problems whose prompt is too long
    note: str = ""  # message about problems with an unreadable gold or prompt

    @property
    def left_out(self) -> int:
        return self.rows - len(self.problems)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Describes a checked run that has not started."""

    config: RunConfig
    model: DecoderConfig
    tokenizer: Tokenizer
    encode: Callable[[Problem], list[int]]  # returns a problem's prompt
    decode: Callable[..., str]  # `decode_completion` of this run
    stop_token_ids: tuple[int, ...]  # ids that end a completion
    train_set: ProblemSet
    held_out: Sequence[ProblemSet]  # the first set's score selects the best checkpoint
    mesh_shape: tuple[int, int, int]  # sizes of the axes data, fsdp and tensor
    stages: tuple[Stage, ...]  # stages of the curriculum; one by default
    gaps: Sequence[str]  # messages about levels without problems
    objective: Objective
    sinks: Mapping[str, Maker]  # additional metric loggers, by name
    code: Mapping[str, Mapping[str, str]]  # `Rewards.code`; empty in followers

    @property
    def train(self) -> Sequence[Problem]:
        return self.train_set.problems

    @property
    def row_multiple(self) -> int:
        """Returns the number of shards that the rows of a batch are split into."""
        return shards("batch", abstract_mesh(self.mesh_shape))

    def tokenize(self, text: str) -> list[int]:
        """Returns a completion's token ids, with a stop token at the end."""
        end = self.tokenizer.eos_token_id
        if end not in self.stop_token_ids:
            end = self.stop_token_ids[0]
        return [*self.tokenizer.encode(text, add_special_tokens=False), end]

    def decode_prompt(self, token_ids: Sequence[int]) -> str:
        """Returns a prompt as the model sees it, special tokens included."""
        return str(self.tokenizer.decode(list(token_ids)))

    def open_rewards(self, workers: int = 0) -> Rewards:
        """Opens `Rewards`; callers close it. 0 `workers` means `reward.workers`."""
        settings = self.config.reward
        if workers:
            settings = dataclasses.replace(settings, workers=workers)
        return Rewards(reward_formulas(self.config), settings)


def validate(c: RunConfig) -> RunSpec:
    """Checks a config against model, data and devices; errors name the key or file."""
    check_config(c)
    try:
        check_template(c.data.template)
    except ValueError as error:
        raise ValueError(f"config.data.{error}") from None
    devices = all_devices()  # first, so that a missing platform is one line
    objective = objective_from_config(c)
    load_advantage(c.objective.advantage)
    make_rejection(c)
    load_extra_groups(c.rollout.extra_groups)
    optimizer = make_optimizer(c.optimizer)
    if c.optimizer.function != ADAMW:
        key = f"config.optimizer.function={c.optimizer.function!r}"
        check_descends(optimizer, key=key)
    sinks = load_sinks(sinks=c.log.sinks)
    sources = _sources(c.data)
    loaded = [
        load_problems(s.text, key=s.key, fields=c.data.fields, arguments=s.arguments)
        for s in sources
    ]
    code: Mapping[str, Mapping[str, str]] = {}
    if jax.process_index() == 0:  # a reward may call a service
        code = try_out(reward_formulas(c), loaded[0][0], c.reward)
    mesh_shape = resolve_shape(
        len(devices), data=c.mesh.data, fsdp=c.mesh.fsdp, tensor=c.mesh.tensor
    )
    with _described(functools.partial(base_folder, c)) as (folder, model, tokenizer):
        if c.objective.reference and objective.needs_reference:
            _check_reference(c, model, tokenizer)
        size = model.vocab_size
        own = tuple(c.rollout.stop_token_ids)
        check_ids(own, vocab_size=size, what="config.rollout.stop_token_ids")
        stop_ids = own or default_stop_ids(folder, tokenizer, vocab_size=size)
    check_sizes(c, model, mesh_shape)
    if c.rollout.tensor and c.rollout.backend == "jax":
        check_tensor(c.rollout.tensor, model, len(devices))
    param_shardings(Decoder(model), abstract_mesh(mesh_shape))

    encode = functools.partial(
        encode_prompt, tokenizer, c.data.template, vocab_size=size
    )
    decode = functools.partial(decode_completion, tokenizer, stop_token_ids=stop_ids)
    train_set, *held_out = [
        _select(c, source, problems, encode)
        for source, problems in zip(sources, loaded, strict=True)
    ]
    stages, gaps = _stages(c, loaded[0], train_set.problems)
    return RunSpec(
        config=c,
        model=model,
        tokenizer=tokenizer,
        encode=encode,
        decode=decode,
        stop_token_ids=stop_ids,
        train_set=train_set,
        held_out=held_out,
        mesh_shape=mesh_shape,
        stages=stages,
        gaps=gaps,
        objective=objective,
        sinks=sinks,
        code=code,
    )


def _select(
    c: RunConfig,
    source: _Source,
    problems: Sequence[Problem],
    encode: Callable[[Problem], list[int]],
) -> ProblemSet:
    """Encodes prompts; leaves out problems with an unreadable gold or a bad prompt."""
    reward = TRAINING if source.name == "train" else EVALUATION
    faults: dict[str, str] = {}
    if uses_verifier(reward_formulas(c)[reward], key=reward):
        r = c.reward
        faults = unreadable_golds(problems, workers=r.workers, timeout=r.timeout)
    readable = [p for p in problems if p.id not in faults]
    prompts: list[tuple[Problem, np.ndarray]] = []
    for problem in each(readable, "encode", "prompts"):
        try:
            prompts.append((problem, np.asarray(encode(problem), np.int32)))
        except UnreadableText as error:
            faults[problem.id] = f"the {error}"
    note = _describe_faults(source.text, problems, faults, c.data.unreadable)
    most = c.rollout.max_prompt_tokens
    fit = [(problem, ids) for problem, ids in prompts if len(ids) <= most]
    if not fit:
        raise ValueError(
            f"config.rollout.max_prompt_tokens={most}: all prompts of {source.key}"
            f"={source.text!r} are longer or unreadable; raise it, or use other"
            " problems"
        )
    return ProblemSet(
        name=source.name,
        source=source.text,
        rows=len(problems),
        problems=[problem for problem, _ in fit],
        prompts=[ids for _, ids in fit],
        too_long=len(prompts) - len(fit),
        note=note,
    )


def _describe_faults(
    source: str, problems: Sequence[Problem], faults: Mapping[str, str], share: float
) -> str:
    """Returns a message about the faults; raises ValueError if they exceed `share`."""
    if not faults:
        return ""
    count, total = len(faults), len(problems)
    message = (
        f"{source}: {count:,} of {total:,} problems ({count / total:.2%}) cannot"
        f" be used, such as {'; '.join([*faults.values()][:3])}"
    )
    if count > share * total:
        golds = (a for p in problems if p.id in faults for a in p.answers)
        if any(re.search(r"\\boxed|####", gold) for gold in golds):
            message += (
                "; the answer must be the final answer alone, not a worked solution,"
                " from which python -m tools.curate takes it"
            )
        raise ValueError(
            f"{message}; fix them, or raise config.data.unreadable={share:g}, the"
            " share that may be left out"
        )
    return f"{message}; they are left out"


@contextlib.contextmanager
def _described(
    find: Callable[..., pathlib.Path],
) -> Iterator[tuple[pathlib.Path, DecoderConfig, Tokenizer]]:
    """Yields a model's folder, config and tokenizer; checks weights that are there.

    `find` is like `base_folder`. The folder may be temporary, without weights.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = find(described_in=pathlib.Path(scratch))
        model = DecoderConfig.from_folder(folder)
        if folder != pathlib.Path(scratch):
            open_weights(folder, model)
        yield folder, model, load_tokenizer(folder)


def _check_reference(c: RunConfig, model: DecoderConfig, tokenizer: Tokenizer) -> None:
    key, name = "config.objective.reference", c.objective.reference
    with _described(functools.partial(model_folder, key, name)) as (_, own, other):
        if other.get_vocab() != tokenizer.get_vocab():
            raise ValueError(
                f"{key}={name!r}: must have the same vocabulary as the base model"
            )
    if c.objective.reset_every and own != model:
        raise ValueError(
            f"{key}={name!r}: its architecture differs from the base model's, so it"
            " cannot be reset to the policy; config.objective.reset_every"
            f"={c.objective.reset_every} must be 0"
        )


def check_sizes(
    c: RunConfig, model: DecoderConfig, mesh_shape: tuple[int, int, int]
) -> None:
    """Checks that `batch.micro_tokens` and the model's positions are large enough."""
    devices = shards("batch", abstract_mesh(mesh_shape))
    longest = max(c.batch.row_lengths)
    if c.batch.micro_tokens < longest * devices:
        raise ValueError(
            f"config.batch.micro_tokens={c.batch.micro_tokens}: must be at least"
            f" {longest * devices} = {longest} (tokens of the longest row) x {devices}"
            " (shards of the batch)"
        )
    r = c.rollout
    if r.max_prompt_tokens + r.max_response_tokens > model.max_positions:
        raise ValueError(
            f"config.rollout.max_prompt_tokens={r.max_prompt_tokens} +"
            f" config.rollout.max_response_tokens={r.max_response_tokens} exceed the"
            f" model's max_position_embeddings={model.max_positions}; lower one of them"
        )


def _sources(d: Data) -> list[_Source]:
    """Returns the source of the training problems, then those of the held-out sets."""
    key = "config.data.eval"
    sources = [_Source("train", "config.data.train", d.train, d.train_args)]
    if isinstance(d.eval, str) and not d.eval.startswith("{"):
        held_out = [_Source("held-out", key, d.eval, d.eval_args)] if d.eval else []
        return sources + held_out
    if not isinstance(d.eval, Mapping):
        raise ValueError(
            f"{key}={d.eval!r}: must be files, a function, or a dict of these by name,"
            " written as in Python: {'NAME': 'VALUE'}"
        )
    for name, text in d.eval.items():
        if not (isinstance(text, str) and text):
            raise ValueError(f"{key}.{name}={text!r}: must be files or a function")
        if not re.fullmatch(r"[A-Za-z0-9][\w-]*", name) or name == "train":
            raise ValueError(
                f"{key}: {name!r} cannot name a set; use a letter or digit, then"
                " letters, digits, - and _; 'train' is reserved"
            )
        arguments = d.eval_args.get(name, {})
        sources.append(_Source(name, f"{key}.{name}", text, arguments))
    for name, arguments in d.eval_args.items():
        if name not in d.eval or not isinstance(arguments, Mapping):
            raise ValueError(
                f"config.data.eval_args.{name}={arguments!r}: must be a dict of"
                f" arguments for one of the sets {', '.join(d.eval)}"
            )
    return sources


def reward_formulas(c: RunConfig) -> Mapping[str, str]:
    """Returns the rewards of training and of evaluation, by config key."""
    return {TRAINING: c.reward.function, EVALUATION: c.eval.reward or c.reward.function}


def _stages(
    c: RunConfig, every: Sequence[Problem], fit: Sequence[Problem]
) -> tuple[tuple[Stage, ...], list[str]]:
    """Returns the curriculum's stages, and messages about levels without problems."""
    r, key = c.rollout, "config.curriculum.stages"
    try:
        stages, gaps = fill_gaps(c.curriculum.stages or (Stage(name="all"),), every)
        Curriculum(stages, fit, seed=c.seed, sampling=c.sampling)
    except ValueError as error:
        why = "; remove the level" if isinstance(error, NoProblem) else ""
        if why and len(fit) < len(every):
            # The level's problems may all have prompts that are too long.
            why = (
                "; prompts that are unreadable or exceed config.rollout."
                f"max_prompt_tokens={r.max_prompt_tokens}: {len(every) - len(fit):,};"
                " raise it, or remove the level"
            )
        raise ValueError(f"{key}{error}{why}") from None
    return stages, gaps
