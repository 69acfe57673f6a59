"""The programs of a run, lowered from shapes alone.

What is named here is what `rl.build` makes of the same config: the same model, step and
sampler, on a mesh whose devices need not exist.
"""

import dataclasses

import jax

from configs.schema import take
from models import hf
from models.qwen2 import Params, abstract_params
from rl.base_model import make_model
from rl.build import make_update
from rl.types import Batch
from rl.update.hyper import make_hyper
from rl.update.objective import make_objective
from rl.update.step import Step, TrainState
from rollout.layout import device_bytes, make_layout, placed
from rollout.programs import Program
from rollout.programs import programs as sampler_programs
from sharding.mesh import SIZES, make_mesh
from sharding.rules import laid_out
from tools.plan.targets import devices
from tools.plan.workload import Workload

# By function, in the order in which a step runs them, export's at the run's end: what
# it is a part of.
PARTS = {
    "prefill": "prefill",
    "prefill_begun": "prefill_begun",
    "insert": "insert",
    "decode": "decode",
    "score": "score",
    "accumulate": "update",
    "apply": "update",
    "publish_table": "publish",
    "publish_layers": "publish",
    "tables": "export",
    "layer": "export",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resident:
    """Bytes that stay on each device from program to program.

    Attributes:
      masters: the parameters in training.
      moments: the optimizer's state, 0 where it rests in the host's memory.
      gradients: while an update's micro-batches are added up.
      reference: the base's parameters, where the objective asks for them.
      published: what servers read out of the devices' memory, where they do.
      served: the sampler's weights; with its cache from publish to the update.
      cache: and slots of the widest decode batch.
      prompts: keys and values of those that were read together last.
      arrays: in which a copy's layers lie, each published by itself.
      copies: of the served weights.
      tensor: devices that share one.
      batch: completions decoded together.
      tokens: that they draw between two looks at what has ended.
      columns: of the cache, read at a time.
      read: positions of one prefill.
    """

    masters: int
    moments: int
    gradients: int
    reference: int = 0
    published: int = 0
    served: int = 0
    cache: int = 0
    prompts: int = 0
    arrays: int = 1
    copies: int = 0
    tensor: int = 1
    batch: int = 0
    tokens: int = 1
    columns: int = 1
    read: int = 1


def programs(work: Workload) -> tuple[Resident, dict[str, Program]]:
    """What stays, and every function of `PARTS` that the run has, in that order.

    Raises:
      ValueError: the config's sampler does not fit beside the trainer.
    """
    c = work.config
    sizes = dict(zip(SIZES, work.mesh_shape, strict=True))
    mesh = make_mesh(**sizes, devices=devices(work.trainer))
    model = take(make_model, c.model)(work.model, mesh, deterministic=c.deterministic)
    objective = take(make_objective, c.objective)()
    step = make_update(c, model, objective)
    shapes = jax.eval_shape(step.init, abstract_params(model)[0])
    state = placed(shapes, step.shardings)

    def copied(dtype):
        def cast(params):
            return jax.tree.map(lambda x: x.astype(dtype), params)

        return placed(jax.eval_shape(cast, state.params), step.shardings.params)

    reference = copied(model.dtype) if objective.needs_reference else None
    of_update = _of_update(work, step, state)
    gradients, *_ = of_update["accumulate"].arguments[0]
    resident = Resident(
        masters=device_bytes(state.params),
        moments=device_bytes(state.opt_state),
        gradients=device_bytes(gradients),
        reference=device_bytes(reference),
    )
    found = of_update | _of_export(work, state.params)
    if work.embedded:
        r = c.rollout
        layout = take(make_layout, r)(
            model,
            prompt_length=r.max_prompt_tokens,
            response_length=r.max_response_tokens,
            begun=c.dynamic_sampling.carry,
            room=work.target.usable - device_bytes((state, reference)),
        )
        found |= sampler_programs(layout, begun=c.dynamic_sampling.carry)
        _, _, _, served, slots, *_ = found["decode"].arguments
        resident = dataclasses.replace(
            resident,
            served=device_bytes(served),
            cache=device_bytes(slots),
            prompts=device_bytes(found["insert"].arguments[3:5]),
            arrays=layout.model.config.num_layers // layout.model.stacked,
            copies=layout.copies,
            tensor=layout.tensor,
            batch=layout.batches()[-1],
            tokens=layout.pace.tokens,
            columns=layout.pace.columns or layout.lengths(1, 1, layout.page)[0],
            read=found["prefill"].arguments[2].ids.size,
        )
    return resident, {name: found[name] for name in PARTS if name in found}


def _of_update(work: Workload, step: Step, state: TrainState) -> dict[str, Program]:
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
    gradients, *statistics = jax.eval_shape(step.zeros, state.params, batch, hyper)
    carry = (
        placed(gradients, step.shardings.params),
        *placed(statistics, jax.tree.map(lambda _: whole, statistics)),
    )
    return {
        "score": Program(step.score, (state.params, batch, hyper)),
        "accumulate": Program(step.accumulate, (carry, state.params, batch, hyper)),
        "apply": Program(step.apply, (state, carry, hyper)),
    }


def _of_export(work: Workload, params: Params) -> dict[str, Program]:
    """A layer's tensors, and those of no layer, brought together as for a file."""
    model, dtype = work.model, hf.DTYPES[work.config.export.dtype]
    whole = laid_out(jax.tree.leaves(params)[0].sharding.mesh)

    def brought(layer: int | None) -> Program:
        weights = tuple(weight for _, weight, of in hf.rows(model) if of == layer)
        arrays = tuple(hf.at(params, weight.path) for weight in weights)
        return Program(hf.lay_out, (weights, model, dtype, whole, arrays, 0))

    return {"tables": brought(None), "layer": brought(0)}
