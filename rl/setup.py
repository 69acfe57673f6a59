"""Makes the engine of a checked run: parameters, update, sampler and checkpoints."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from configs.base import Lora, RunConfig, in_stage
from models import hf, lora
from models.attention import SHARES_PREFIXES
from models.config import DecoderConfig
from models.decoder import Decoder, Params, abstract_params, param_shardings
from rl import base_model, checksums
from rl.checkpoint import Checkpoints
from rl.engine import Engine
from rl.processes.devices import join_cpu_devices
from rl.processes.group import Processes, SingleProcess
from rl.progress import phase
from rl.run_spec import RunSpec
from rl.sampler_servers import make_vllm_sampler
from rl.update.examine import check_finite
from rl.update.objective import Objective
from rl.update.optimizer import make_optimizer
from rl.update.rejection import make_rejection
from rl.update.step import Score, Step, TrainState, make_score, make_step
from rl.workdir.export import serve_as_trained
from rollout.jax_sampler import JaxSampler
from rollout.layout import device_bytes, device_memory, make_layout
from rollout.prompts import common_length
from sharding.mesh import make_mesh


def make_engine(
    spec: RunSpec,
    workdir: pathlib.Path,
    check_stop: Callable[[], None] = lambda: None,
    processes: Processes | None = None,
) -> Engine:
    """Makes the engine: parameters, update step, sampler and checkpoints.

    In followers, `check_stop` and `processes` are the defaults.
    """
    c = spec.config
    mesh = make_mesh(data=c.mesh.data, fsdp=c.mesh.fsdp, tensor=c.mesh.tensor)
    join_cpu_devices(mesh)
    folder = base_model.base_folder(c)
    if jax.process_index() == 0:
        hf.copy_assets(folder, workdir / "assets")
        serve_as_trained(
            workdir / "assets",
            stop_token_ids=spec.stop_token_ids,
            temperature=in_stage(c, spec.stages[-1]).rollout.temperature,
            template=c.data.template,
            tokenizer=spec.tokenizer,
        )
    model = base_model.model_from_config(c, spec.model, mesh)
    if c.batch.share_prompts and model.attention not in SHARES_PREFIXES:
        raise ValueError(
            f"config.batch.share_prompts=True: attention {model.attention!r} cannot"
            " share prompts; set config.batch.share_prompts=False or"
            " config.model.attention='xla'"
        )
    servers = None
    if c.rollout.backend == "vllm":
        # First, so that servers start while weights are loaded.
        servers = make_vllm_sampler(
            c,
            model=model.clone(remat="none"),
            folder=folder,
            workdir=workdir,
            prompt=spec.train_set.prompts[0].tolist(),
        )
    step = make_update(c, model, spec.objective)
    count = base_model.parameter_count(spec.model)
    with phase("load", str(folder), total=count, unit="parameters") as loaded:
        params = hf.load_params(folder, model, mesh, on_loaded=loaded.update)
        check_finite(params, str(folder))
        # With adapters the frozen base can be the reference as well.
        adapters = lora.init_adapters(
            abstract_params(model)[0],
            param_shardings(model, mesh),
            c.model.lora.init_seed,
        )
        trained, base = (adapters, params) if adapters else (params, {})
        state, reference, score_reference = _add_reference(
            spec, mesh, step.init(trained), base
        )
    name = base_model.base_name(c, folder)
    return Engine(
        config=model.config,
        step=step,
        state=state,
        sampler=servers
        or _make_embedded(
            spec,
            model,
            lora.join(state.params, base),
            (state, base, None if reference is base else reference),
        ),
        checkpoints=Checkpoints(
            workdir / "checkpoints",
            keep=c.checkpoint.keep,
            base=checksums.describe_base(base, name) if base else None,
        ),
        assets=workdir / "assets",
        base=base,
        base_name=name,
        reference=reference,
        score_reference=score_reference or step.score,
        settings=c.objective,
        reject=make_rejection(c),
        check_stop=check_stop,
        processes=processes or SingleProcess(),
        embedded=servers is None,
    )


def make_update(c: RunConfig, model: Decoder, objective: Objective) -> Step:
    return make_step(
        model,
        make_optimizer(c.optimizer),
        objective,
        head_chunk=c.model.head_chunk,
        offload_optimizer=c.mesh.offload_optimizer,
    )


def _add_reference(
    spec: RunSpec, mesh: Mesh, state: TrainState, base: Params
) -> tuple[TrainState, Params | None, Score | None]:
    """Provides the reference model that the objective needs, if any.

    Returns the training state, the reference, and its scoring function. A reference
    that training resets is in the state. The function is None for `Step.score`.
    """
    c, objective = spec.config, spec.objective
    if not objective.needs_reference:
        return state, None, None
    if c.objective.reference:
        key = "config.objective.reference"
        folder = base_model.model_folder(key, c.objective.reference)
        architecture = DecoderConfig.from_folder(folder)
        settings = dataclasses.replace(c.model, param_dtype=c.model.dtype, lora=Lora())
        c = dataclasses.replace(c, model=settings)
        model = base_model.model_from_config(c, architecture, mesh)
        reference = hf.load_params(folder, model, mesh)
        check_finite(reference, str(folder))
        score = make_score(model, c.model.head_chunk)
        if objective.keeps_reference:
            return state.replace(reference=reference), None, score
        return state, reference, score
    if objective.keeps_reference:  # `Step.init` has copied the base
        return state, None, None
    if base:  # frozen, so it needs no copy
        return state, base, None
    copy = jax.tree.map(lambda x: jnp.array(x, c.model.dtype), state.params)
    return state, copy, None


def _make_embedded(
    spec: RunSpec, model: Decoder, params: Params, resident: Any
) -> JaxSampler:
    """Makes and compiles a sampler on devices that also hold the arrays `resident`."""
    c = spec.config
    assert model.mesh is not None
    memory = device_memory(model.mesh)
    carry = c.dynamic_sampling.carry
    prompts = [ids for s in (spec.train_set, *spec.held_out) for ids in s.prompts]
    layout = make_layout(
        model,
        slots=c.rollout.slots,
        tensor=c.rollout.tensor,
        prompt_length=c.rollout.max_prompt_tokens,
        response_length=c.rollout.max_response_tokens,
        common=common_length([ids.tolist() for ids in prompts]),
        partial=carry,
        room=memory and memory - device_bytes(resident),
    )
    sampler = JaxSampler(layout, params)
    sizes = len(layout.slot_counts())
    with phase("compile", "the sampler", total=sizes, unit="programs") as compiled:
        sampler.warm_up(partial=carry, on_compiled=compiled.update)
    return sampler
