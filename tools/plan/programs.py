"""Builds the programs of a run from array shapes, for devices that need not exist."""

from collections.abc import Mapping
from typing import NamedTuple

import jax

from models import lora
from models.decoder import abstract_params, param_shardings
from models.tensors import DTYPES, conversions, convert_group
from rl.base_model import model_from_config
from rl.setup import make_update
from rl.types import Batch
from rl.update.objective import objective_from_config
from rollout.layout import Layout, device_bytes, make_layout, with_shardings
from rollout.programs import Program
from rollout.programs import programs as sampler_programs
from sharding.mesh import SIZES, make_mesh
from sharding.rules import named_sharding
from tools.bench.work import SCALARS
from tools.plan.targets import devices
from tools.plan.workload import Workload

# For each program, in the order of a training step: the arrays that it reads or writes,
# and the other arrays that are in memory. The sampler frees its memory before
# log-probabilities are computed.
PHASES = {
    "prefill": ("served", "masters moments cache"),
    "prefill_partial": ("served", "masters moments cache"),
    "insert": ("cache prompts", "masters moments served"),
    "decode": ("served cache", "masters moments prompts"),
    "score": ("masters base", "moments"),
    "accumulate": ("masters base gradients", "moments"),
    "apply": ("masters moments gradients", ""),
    "publish_table": ("masters base served", "moments"),
    "publish_layers": ("masters base served", "moments"),
    "export_table": ("masters base", "moments served"),
    "export_layer": ("masters base", "moments served"),
}


class Resident(NamedTuple):
    sizes: Mapping[str, int]  # bytes on each device, by name as in PHASES
    # Tokens that each device computes in one run of a program, by name of the program.
    tokens: Mapping[str, float] = {}
    layout: Layout | None = None  # of the embedded sampler; None with vLLM


def programs(work: Workload) -> tuple[Resident, dict[str, Program]]:
    """Returns sizes of resident arrays, and programs by name in the order of PHASES.

    Raises:
      ValueError: the compiler does not support the target, the trainer leaves too
        little memory for the sampler, or a function that the config names cannot be
        imported.
    """
    c = work.config
    sizes = dict(zip(SIZES, work.mesh_shape, strict=True))
    mesh = make_mesh(**sizes, devices=devices(work.target))
    model = model_from_config(c, work.model, mesh)
    objective = objective_from_config(c)
    step = make_update(c, model, objective)
    trained, frozen = lora.split(abstract_params(model)[0])
    _, shardings = lora.split(param_shardings(model, mesh))
    state = with_shardings(jax.eval_shape(step.init, trained), step.shardings)
    base, reference = with_shardings(frozen, shardings), None
    if objective.needs_reference and not base:
        reference = jax.tree.map(lambda x: x.update(dtype=model.dtype), state.params)
    params = lora.join(state.params, base)
    rows, whole = Batch.padding(work.rows, work.row_length), named_sharding(mesh)
    batch = with_shardings(rows, jax.tree.map(lambda _: step.rows, rows))
    gradients, *statistics = jax.eval_shape(step.zeros, params, batch, SCALARS)
    gradients = with_shardings(gradients, step.shardings.params)
    replicated = jax.tree.map(lambda _: whole, statistics)
    sums = (gradients, *with_shardings(statistics, replicated))
    found = {
        "score": Program(step.score, (params, batch, SCALARS)),
        "accumulate": Program(step.accumulate, (sums, params, batch, SCALARS)),
        "apply": Program(step.apply, (state, sums, SCALARS)),
    }
    exports = conversions(params, model.config, DTYPES[c.export.dtype])
    for name in ("export_table", "export_layer"):  # of the embedding, then of a layer
        found[name] = Program(convert_group, next(exports)[1])
    arrays = {
        "masters": state.params,
        "moments": state.opt_state,  # 0 bytes if on the host between updates
        "gradients": gradients,  # summed over the micro-batches of an update
        "base": base,  # the frozen parameters under adapters
        "reference": reference,
    }
    each = work.rows * work.row_length / work.target.count
    tokens, layout = {"score": each, "accumulate": each}, None
    if c.rollout.backend == "jax":
        r, carry = c.rollout, c.dynamic_sampling.carry
        layout = make_layout(
            model,
            slots=r.slots,
            tensor=r.tensor,
            prompt_length=r.max_prompt_tokens,
            response_length=r.max_response_tokens,
            partial=carry,
            room=work.target.usable - device_bytes((state, base, reference)),
        )
        sampling = sampler_programs(layout, partial=carry)
        _, _, _, served, slots, *_ = sampling["decode"].arguments
        prompts = sampling["insert"].arguments[3]  # keys and values of one prefill
        arrays |= {"served": served, "cache": slots, "prompts": prompts}
        # Each copy of the weights prefills one row of prompts.
        for name in {"prefill", "prefill_partial"} & {*sampling}:
            tokens[name] = sampling[name].arguments[2].ids.shape[-1] / layout.tensor
        decoded = layout.slot_counts()[-1] * layout.settings.tokens
        tokens["decode"] = decoded / work.target.count
        found |= sampling
    resident = {name: device_bytes(array) for name, array in arrays.items()}
    in_order = {name: found[name] for name in PHASES if name in found}
    return Resident(resident, tokens, layout), in_order
