"""Lowers the programs of a run from array shapes, for devices that need not exist.

They are the programs that `rl.setup` builds from the same config.
"""

import dataclasses
from collections.abc import Mapping

import jax

from models import lora
from models.decoder import Params, abstract_params, param_shardings
from rl.base_model import model_from_config
from rl.setup import make_update
from rl.types import Batch, make_hyper
from rl.update.objective import objective_from_config
from rl.update.step import Step, TrainState
from rollout.layout import device_bytes, make_layout, placed
from rollout.programs import Program
from rollout.programs import programs as sampler_programs
from sharding.mesh import SIZES, make_mesh
from sharding.rules import laid_out
from tools.plan.targets import devices
from tools.plan.workload import Workload

# Names of programs in the order in which a training step runs them.
NAMES = (
    "prefill", "prefill_partial", "insert", "decode", "score", "accumulate", "apply",
    "publish_table", "publish_layers",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resident:
    """Holds the sizes of arrays that stay on the devices, and of the sampler.

    Attributes from `masters` to `prompts` are bytes on each device.

    Attributes:
      masters: the trained parameters.
      base: the frozen parameters, if adapters are trained.
      moments: the optimizer's state; 0 if it is on the host between updates.
      gradients: the sum of gradients over the micro-batches of an update.
      reference: the reference model's parameters, if the objective needs them.
      served: the sampler's weights, which exist from publish to update.
      cache: the key-value cache and other state of the largest decode batch.
      prompts: the keys and values of one prefill.
      copies: number of copies of the served weights.
      tensor: number of devices per copy.
      batch: number of completions that are decoded at the same time.
      columns: number of cache positions in one read.
      tokens: number of tokens that each device computes in one run, by program.
    """

    masters: int
    moments: int
    gradients: int
    base: int = 0
    reference: int = 0
    served: int = 0
    cache: int = 0
    prompts: int = 0
    copies: int = 0
    tensor: int = 1
    batch: int = 0
    columns: int = 1
    tokens: Mapping[str, float] = dataclasses.field(default_factory=dict)


def programs(work: Workload) -> tuple[Resident, dict[str, Program]]:
    """Returns the sizes of resident arrays, and the run's programs in order of NAMES.

    Raises:
      ValueError: the trainer leaves too little memory for the config's sampler.
    """
    c = work.config
    sizes = dict(zip(SIZES, work.mesh_shape, strict=True))
    mesh = make_mesh(**sizes, devices=devices(work.trainer))
    model = model_from_config(c, work.model, mesh)
    objective = objective_from_config(c)
    step = make_update(c, model, objective)
    trained, frozen = lora.split(abstract_params(model)[0])
    _, shardings = lora.split(param_shardings(model, mesh))
    state = placed(jax.eval_shape(step.init, trained), step.shardings)
    base, reference = placed(frozen, shardings), None
    if objective.needs_reference and not base:
        reference = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, model.dtype, sharding=x.sharding),
            state.params,
        )
    found = _update_programs(work, step, state, lora.join(state.params, base))
    gradients, *_ = found["accumulate"].arguments[0]
    resident = Resident(
        masters=device_bytes(state.params),
        moments=device_bytes(state.opt_state),
        gradients=device_bytes(gradients),
        base=device_bytes(base),
        reference=device_bytes(reference),
        tokens=dict.fromkeys(
            ("score", "accumulate"), work.rows * work.row_length / work.trainer.count
        ),
    )
    if work.embedded:
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
        found |= sampler_programs(layout, partial=carry)
        _, _, _, served, slots, *_ = found["decode"].arguments
        assert layout.settings is not None
        batch = layout.batches()[-1]
        # Each copy of the weights prefills one row of prompts.
        tokens: dict[str, float] = {
            name: found[name].arguments[2].ids.shape[-1] / layout.tensor
            for name in ("prefill", "prefill_partial")
            if name in found
        }
        tokens["decode"] = batch * layout.settings.tokens / work.trainer.count
        resident = dataclasses.replace(
            resident,
            served=device_bytes(served),
            cache=device_bytes(slots),
            prompts=device_bytes(found["insert"].arguments[3:5]),
            copies=layout.copies,
            tensor=layout.tensor,
            batch=batch,
            columns=layout.settings.columns or layout.lengths(1, 1, layout.prefix)[0],
            tokens={**resident.tokens, **tokens},
        )
    return resident, {name: found[name] for name in NAMES if name in found}


def _update_programs(
    work: Workload, step: Step, state: TrainState, params: Params
) -> dict[str, Program]:
    rows = Batch.padding(work.rows, work.row_length)
    batch = placed(rows, jax.tree.map(lambda _: step.rows, rows))
    hyper = make_hyper(
        learning_rate=1e-6,
        eps_low=0.2,
        eps_high=0.28,
        temperature=1.0,
        first_update=False,
    )
    whole = laid_out(step.rows.mesh)
    gradients, *statistics = jax.eval_shape(step.zeros, params, batch, hyper)
    carry = (
        placed(gradients, step.shardings.params),
        *placed(statistics, jax.tree.map(lambda _: whole, statistics)),
    )
    return {
        "score": Program(step.score, (params, batch, hyper)),
        "accumulate": Program(step.accumulate, (carry, params, batch, hyper)),
        "apply": Program(step.apply, (state, carry, hyper)),
    }
