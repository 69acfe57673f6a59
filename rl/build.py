"""From a plan to the parts that the loop joins; the loop enters here once."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from configs.schema import config_json, take
from models import hf
from models.qwen2 import Params, Qwen2
from rl import files
from rl.alarms import Alarms, Limits
from rl.base_model import check_shared_prompts, make_model, parameter_count
from rl.batches.collect import Collector
from rl.batches.draws import Draws
from rl.batches.judge import Judge
from rl.batches.packing import pack_groups
from rl.batches.schedule import Rollouts
from rl.checkpoint import Checkpoints
from rl.engine import Engine
from rl.plan import TRAINING, Plan
from rl.problems.curriculum import Curriculum
from rl.problems.reading import HELD_OUT, write_problems
from rl.processes import group, joint
from rl.processes.devices import join_cpu_devices
from rl.progress import WatchedSampler, phase
from rl.reward.rewards import Rewards
from rl.sampler_servers import make_vllm_sampler
from rl.types import Batch, Hyper
from rl.update import optimizer as optimizers
from rl.update.examine import check_finite
from rl.update.hyper import make_hypers
from rl.update.objective import Objective, make_objective
from rl.update.step import Step, TrainState, make_step
from rl.workdir import manifest
from rl.workdir.export import serve_as_trained
from rl.workdir.trace import Trace
from rollout.jax_sampler import JaxSampler
from rollout.layout import device_bytes, device_memory, make_layout
from rollout.prompts import common_length
from rollout.types import PolicySampler
from sharding.mesh import make_mesh


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """What the loop joins.

    Attributes:
      engine: samples, updates, publishes, saves.
      rollouts: each step's groups, when the schedule says.
      rewards: judge what is sampled, and what is evaluated.
      alarms: watch the metrics.
      trace: of the steps that the config names.
      pack: `pack_groups` of this run: groups and their version to mini-batches.
      hypers: `make_hypers` of this run: a stage, the updates done and a number of
        mini-batches to the scalars of each update.
    """

    engine: Engine
    rollouts: Rollouts
    rewards: Rewards
    alarms: Alarms
    trace: Trace
    pack: Callable[..., list[list[Batch]]]
    hypers: Callable[..., list[Hyper]]


@contextlib.contextmanager
def open_parts(
    plan: Plan,
    workdir: pathlib.Path,
    processes: group.Processes,
    check_stop: Callable[[], None],
    *,
    accept_changes: bool,
) -> Iterator[Parts]:
    """Makes the parts of a run, and closes them at the end.

    Args:
      plan: the run.
      workdir: of the run.
      processes: the leader's, or the only process.
      check_stop: called while completions are drawn; raises where the run is to end.
      accept_changes: see `rl.workdir.manifest.begin`.

    Raises:
      ValueError: the workdir holds another run.
    """
    c = plan.config
    with phase("base", c.model.path or c.model.maker):
        base = plan.base()  # before the other processes look for it
    with phase("identify", "hashes the base, the problems and the code"):
        identity = manifest.identify(plan, base)
    for line in manifest.begin(workdir, identity, accept_changes=accept_changes):
        print(line)
    print(f"numbers: {plan.numbers}")
    for line in plan.unread:
        print(line)
    if plan.left_out:
        most = f"config.rollout.max_prompt_tokens={c.rollout.max_prompt_tokens}"
        print(f"{plan.left_out:,} problems left out: their prompts exceed {most}")
    for line in plan.gaps:
        print(f"curriculum: stage {line}")
    files.replace(workdir / "config.json", config_json(c) + "\n")
    if plan.held_out:  # as data: nobody has to call what the config names
        write_problems(workdir / HELD_OUT, plan.held_out)
    engine = joint.lead(
        processes,
        functools.partial(make_engine, plan, workdir),
        config=config_json(c),
        embedded=c.rollout.backend == "jax",
    )
    rewards = take(Rewards, c.reward)(plan.rewards)
    collector = take(
        Collector,
        c.dynamic_sampling,
        c.batch,
        c.sampling,
        draws=take(Draws, c.sampling)(
            Curriculum(plan.stages, plan.train, seed=c.seed), plan.train
        ),
        sample=WatchedSampler(engine, "sample", check_stop).sample,
        judge=take(Judge, c.reward)(
            reward=rewards.reward(TRAINING), decode=plan.decode
        ),
        encode=plan.encode,
        sampling=plan.sampling,
        seed=c.seed,
    )
    rollouts = take(Rollouts, c.rollout, steps=c.steps)(collector())
    # The engine is closed first: that ends what the other two still wait for.
    with (
        contextlib.closing(rollouts),
        contextlib.closing(rewards),
        contextlib.closing(engine),
        Trace(workdir, **c.profile) as trace,
    ):
        yield Parts(
            engine=engine,
            rollouts=rollouts,
            rewards=rewards,
            alarms=Alarms(Limits(**c.alarms)),
            trace=trace,
            pack=take(
                pack_groups,
                c.batch,
                c.objective,
                sampler_is_trainer=c.rollout.backend == "jax",
                constant=c.rollout.max_response_tokens,
                row_multiple=plan.row_multiple,
            ),
            hypers=take(
                make_hypers,
                c.batch,
                c.objective,
                schedule=optimizers.make_schedule(**c.schedule),
                learning_rate=c.schedule.learning_rate,
                temperature=c.rollout.temperature,
            ),
        )


def make_engine(plan: Plan, workdir: pathlib.Path) -> Engine:
    """Parameters on the mesh, the compiled step, the sampler and the checkpoints.

    With several processes all of them call it.

    Args:
      plan: the run.
      workdir: `checkpoints/`, `assets/` and the servers' logs live there.
    """
    c = plan.config
    mesh = take(make_mesh, c.mesh)()
    join_cpu_devices(mesh)
    folder = plan.base()
    if jax.process_index() == 0:
        hf.copy_assets(folder, workdir / "assets")
        serve_as_trained(
            workdir / "assets",
            stop_token_ids=plan.sampling.stop_token_ids,
            temperature=plan.stages[-1].temperature or c.rollout.temperature,
            template=c.data.template,
            tokenizer=plan.tokenizer,
        )
    model = take(make_model, c.model)(plan.model, mesh, deterministic=c.deterministic)
    check_shared_prompts(c.batch.share_prompts, model)
    servers = None
    if c.rollout.backend == "vllm":
        # First: servers come up while weights are read and programs compiled.
        servers = make_servers(plan, model, folder, workdir)
    objective = take(make_objective, c.objective)()
    step = make_update(c, model, objective)
    count = parameter_count(plan.model)
    with phase("load", str(folder), total=count, unit="parameters") as loaded:
        params = hf.load_params(folder, model, mesh, on_loaded=loaded.update)
        check_finite(params, str(folder))
        reference = make_reference(objective, params, dtype=c.model.dtype)
        state = step.init(params)
    return take(Engine, c.objective)(
        config=plan.model,
        step=step,
        state=state,
        sampler=servers or make_embedded(plan, model, state, reference),
        checkpoints=take(Checkpoints, c.checkpoint)(workdir / "checkpoints"),
        assets=workdir / "assets",
        reference=reference,
    )


def make_update(config: ConfigDict, model: Qwen2, objective: Objective) -> Step:
    """The compiled functions of the run's updates."""
    return take(make_step, config.model, config.mesh)(
        model,
        optimizers.make_optimizer(**config.optimizer),
        model.mesh,
        objective,
    )


def make_reference(
    objective: Objective, params: Params, *, dtype: hf.DType
) -> Params | None:
    """A copy of the base model, in the dtype of compute, for whoever asks for it."""
    if not objective.needs_reference:
        return None
    return jax.tree.map(lambda x: jnp.array(x, dtype), params)


def make_embedded(
    plan: Plan, model: Qwen2, state: TrainState, reference: Params | None
) -> JaxSampler:
    """The sampler on the trainer's own devices, its programs compiled."""
    r = plan.config.rollout
    memory = device_memory(model.mesh)
    carry = plan.config.dynamic_sampling.carry
    layout = take(make_layout, r)(
        model,
        prompt_length=r.max_prompt_tokens,
        response_length=r.max_response_tokens,
        common=common_length(list(plan.prompts.values())),
        begun=carry,
        room=memory and memory - device_bytes((state, reference)),
    )
    sampler = JaxSampler(layout, state.params)
    sizes = len(sampler.batches())
    with phase("compile", "the sampler", total=sizes, unit="programs") as compiled:
        sampler.warm_up(begun=carry, on_compiled=compiled.update)
    return sampler


def make_servers(
    plan: Plan, model: Qwen2, folder: pathlib.Path, workdir: pathlib.Path
) -> PolicySampler:
    """vLLM's servers, started or attached to; they wait for a policy."""
    r = plan.config.rollout
    return make_vllm_sampler(
        **r.vllm,
        model=model.clone(remat="none"),
        folder=folder,
        workdir=workdir,
        prompt=plan.encode(plan.train[0]).tolist(),
        max_model_len=r.max_prompt_tokens + r.max_response_tokens,
        head_chunk=plan.config.model.head_chunk,
        in_flight="keep" if r.schedule == "async" else "abort",
    )
