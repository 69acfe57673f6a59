"""From a plan to the objects that the loop uses."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from models import hf
from models.qwen2 import Qwen2
from rl import optimizer as optimizers
from rl.alarms import Alarms
from rl.checkpoint import Checkpoints
from rl.collect import Collector
from rl.curriculum import Curriculum, Stage
from rl.devices import join_cpu_devices
from rl.engine import Engine
from rl.overlap import Rollouts
from rl.plan import (
    Plan,
    attention_implementation,
    call,
    mesh_sizes,
    model_folder,
)
from rl.reward import Reward, custom_reward, shuffled, verifier_reward
from rl.sidecar import make_vllm_sampler
from rl.step import make_step
from rl.verifier import VerifierPool
from rollout.jax_sampler import JaxSampler
from rollout.types import Sampler, SamplingParams, SeedStream
from sharding.mesh import make_mesh


def make_engine(plan: Plan, workdir: pathlib.Path) -> Engine:
    """Parameters on the mesh, the compiled step, the sampler and the checkpoints.

    With several processes all of them call it.

    Args:
      plan: the run.
      workdir: `checkpoints/`, `assets/` and the servers' logs live there.
    """
    c = plan.config
    mesh = make_mesh(**mesh_sizes(c))
    join_cpu_devices(mesh)
    folder = model_folder(c, weights=True)
    if jax.process_index() == 0:
        hf.copy_assets(folder, workdir / "assets")
    model = Qwen2(
        plan.model,
        mesh=mesh,
        dtype=jnp.dtype(c.model.dtype),
        param_dtype=jnp.dtype(c.model.param_dtype),
        remat=c.model.remat,
        unroll=c.model.unroll,
        attention=attention_implementation(c),
    )
    optimizer = call(optimizers.make_optimizer, "optimizer", c.optimizer)
    sampler = None
    if c.rollout.backend == "vllm":
        # First: servers come up while weights are read and programs compiled.
        sampler = make_servers(plan, model, folder, workdir)
    step = make_step(
        model,
        optimizer,
        mesh,
        temperature=c.rollout.temperature,
        head_chunk=c.model.head_chunk,
        dual_clip=c.objective.dual_clip or None,
        correction=c.objective.correction,
        correction_cap=c.objective.correction_cap,
        offload=c.mesh.offload_optimizer,
    )
    state = step.init(hf.load_params(folder, model, mesh))
    if sampler is None:
        sampler = JaxSampler(
            model,
            mesh,
            state.params,
            slots=c.rollout.slots,
            prompt_length=c.rollout.max_prompt_tokens,
        )
        sampler.warm_up(c.rollout.max_response_tokens)
    return Engine(
        config=plan.model,
        step=step,
        state=state,
        sampler=sampler,
        checkpoints=Checkpoints(workdir / "checkpoints", keep=c.checkpoint.keep),
        assets=workdir / "assets",
    )


def make_servers(
    plan: Plan, model: Qwen2, folder: pathlib.Path, workdir: pathlib.Path
) -> Sampler:
    """vLLM's servers, started or attached to; they wait for a policy."""
    r = plan.config.rollout
    return call(
        make_vllm_sampler,
        "rollout.vllm",
        r.vllm,
        model=model.clone(remat="none"),
        folder=folder,
        workdir=workdir,
        prompt=plan.encode(plan.train[0]).tolist(),
        max_model_len=r.max_prompt_tokens + r.max_response_tokens,
        head_chunk=plan.config.model.head_chunk,
        in_flight="keep" if r.schedule == "async" else "abort",
    )


def make_reward(config: ConfigDict, pool: VerifierPool, seeds: SeedStream) -> Reward:
    """The verifier's reward or the user's, or the shuffled control of either."""
    r = config.reward
    reward = custom_reward(r.function) if r.function else verifier_reward(pool)
    if r.shuffle:
        return shuffled(reward, lambda: np.random.default_rng(seeds.next()))
    return reward


def make_collector(
    plan: Plan,
    *,
    engine: Engine,
    reward: Reward,
    seeds: SeedStream,
    problems: Curriculum,
    check_stop: Callable[[], None],
) -> Collector:
    return call(
        Collector,
        "dynamic_sampling",
        plan.config.dynamic_sampling,
        problems=problems,
        sample=engine.sample,
        reward=reward,
        encode=plan.encode,
        decode=plan.decode,
        seeds=seeds,
        check_stop=check_stop,
    )


def make_curriculum(plan: Plan) -> Curriculum:
    """The training problems, stage by stage."""
    return Curriculum(plan.stages, plan.train, seed=plan.config.seed)


def make_rollouts(
    plan: Plan,
    collector: Collector,
    curriculum: Curriculum,
    snapshot: Callable[[], dict[str, Any]],
) -> Rollouts:
    """The batches of the run's steps, drawn when the schedule says."""
    c = plan.config

    def collect(step):
        groups, tally = collector.collect(
            step,
            groups=c.batch.prompts_per_step,
            params=sampling_params(plan, curriculum.begin(step)),
            overlong_buffer=c.reward.overlong_buffer,
            overlong_factor=c.reward.overlong_factor,
        )
        curriculum.observe(
            accuracy=tally.accuracy,
            solve_all=tally.solve_all_rate,
            updates=bool(groups),
        )
        return groups, tally

    try:
        return Rollouts(
            collect,
            snapshot,
            schedule=c.rollout.schedule,
            max_lag=c.rollout.max_lag,
            steps=c.steps,
        )
    except ValueError as error:
        raise ValueError(f"config.{error}") from None


def sampling_params(plan: Plan, stage: Stage) -> SamplingParams:
    """How completions of a training step are drawn in a stage."""
    r = plan.config.rollout
    return SamplingParams(
        n=stage.group_size or r.group_size,
        max_tokens=stage.max_response_tokens or r.max_response_tokens,
        temperature=r.temperature,
        top_p=r.top_p,
        stop_token_ids=plan.stop_token_ids,
    )


def make_schedule(config: ConfigDict) -> Callable[[int], float]:
    return call(optimizers.make_schedule, "schedule", config.schedule)


def make_alarms(config: ConfigDict) -> Alarms:
    return call(Alarms, "alarms", config.alarms)


def row_multiple(plan: Plan) -> int:
    """Devices that share the rows of a batch."""
    return plan.mesh_shape[0] * plan.mesh_shape[1]
