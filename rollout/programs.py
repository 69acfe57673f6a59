"""Lists the sampler's main jitted programs with the shapes of their arguments.

`tools.plan` compiles them ahead of time, without allocating arrays.
"""

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from models.cache import Spans
from models.decoder import LAYERS, abstract_params, param_shardings
from models.inference import abstract_served, layers_program, table_program
from rollout import decoding
from rollout.layout import Layout, with_shardings
from rollout.prompts import Rows
from rollout.types import SamplingParams
from sharding.rules import named_sharding


class Program(NamedTuple):
    """Holds a jitted function and its arguments as shapes with shardings."""

    function: Any
    arguments: tuple

    def lower(self) -> jax.stages.Lowered:
        return self.function.lower(*self.arguments)


def programs(
    layout: Layout, *, num_slots: int = 0, partial: bool = False
) -> dict[str, Program]:
    """Returns the main programs of `JaxSampler` by name; "decode" does not apply top-p.

    Args:
      layout: the sampler's layout; the devices of its mesh need not exist.
      num_slots: one of `layout.slot_counts()`; 0 for the largest.
      partial: whether to add "prefill_partial". "insert" then takes the results of
        "prefill_partial" instead of those of "prefill".
    """
    model, mesh = layout.model, layout.mesh
    num_slots = num_slots or layout.slot_counts()[-1]
    prefix = layout.prefix
    columns, width = layout.lengths(1, 1, prefix)
    refill = layout.refill(num_slots)
    whole = named_sharding(mesh)

    def array(shape, dtype, sharding: NamedSharding = whole):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    assert layout.trained.mesh is not None
    trained, _ = abstract_params(layout.trained)
    trained = with_shardings(
        trained, param_shardings(layout.trained, layout.trained.mesh)
    )
    weights = with_shardings(*abstract_served(model))
    state = jax.eval_shape(
        lambda: inspect.unwrap(decoding.empty)(model, num_slots, columns, width, prefix)
    )
    state = with_shardings(state, decoding.shardings(state, mesh))
    params = SamplingParams(max_tokens=1, stop_token_ids=(0,))
    dynamic = jax.tree.map(
        lambda x: array(x.shape, x.dtype),
        jax.eval_shape(lambda: decoding.dynamic_params(params)),
    )

    shapes = {"prefill": layout.prefill_shape(num_slots, 1)}
    if partial:
        shapes["prefill_partial"] = layout.partial_shape(num_slots, columns, prefix)
    read = {
        name: (model, weights, Rows(*[array(shape, jnp.int32)] * 4))
        for name, shape in shapes.items()
    }
    k, v = jax.tree.map(
        lambda x: array(
            x.shape, x.dtype, named_sharding(mesh, *[None] * (x.ndim - 3), "kv_heads")
        ),
        jax.eval_shape(
            lambda *a: inspect.unwrap(decoding.prefill)(model, *a),
            *read["prefill_partial" if partial else "prefill"][1:],
        ),
    )
    of_refill = array((refill,), jnp.int32)
    spans = Spans(of_refill, of_refill, of_refill, array((), jnp.int32))
    path = array((refill, 2), jnp.uint32)
    new = decoding.Insertion(k, v, spans, of_refill, of_refill, of_refill, path)
    return {
        "publish_table": Program(
            table_program("embedding", layout.trained, model), (trained["embedding"],)
        ),
        "publish_layers": Program(
            layers_program(layout.trained, model), (trained[LAYERS], np.int32(0))
        ),
        **{name: Program(decoding.prefill, of) for name, of in read.items()},
        "insert": Program(decoding.insert, (mesh, state, array((2,), jnp.uint32), new)),
        "decode": Program(
            decoding.decode,
            (model, layout.settings, False, weights, state, dynamic)
            + (array((), jnp.int32),),
        ),
    }
