"""What the compiler will say of an update, at once and without it: for `search`.

Parameters, moments and gradients are counted. Temporary memory is a sum of what such a
program holds at its peak (`PARTS`), each times what XLA was seen to make of it for the
platform; docs/scaling.md has estimates beside compiled figures.
"""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp

from rl.update.head import BLOCK
from rl.update.step import summed_in
from tools.plan import speed
from tools.plan.workload import Workload, shard_sizes

# Multiples of the parts below, fitted to compiled programs by least squares.
FITTED: Mapping[str, Mapping[str, float]] = {
    "tpu": {
        "gradient": 1.63,
        "shards": 1.27,
        "carries": 1.27,
        "layer": 2.15,
        "wide": 1.69,
        "saved": 1.0,
        "head": 1.08,
    },
    "cuda": {
        "gradient": 0.87,
        "shards": 0.55,
        "carries": 1.33,
        "layer": 1.57,
        "wide": 0.76,
        "saved": 0.98,
        "head": 0.71,
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Of an update, per device.

    Attributes:
      masters, moments: bytes that stay.
      accumulate: bytes at a micro-batch, all that stays included.
      apply: bytes at the optimizer's application.
      seconds: of one token of a micro-batch, all devices together, at best.
    """

    masters: int
    moments: int
    accumulate: float
    apply: float
    seconds: float

    @property
    def peak(self) -> float:
        return max(self.accumulate, self.apply)


def parts(work: Workload) -> dict[str, float]:
    """Bytes of what a micro-batch's program holds besides its arguments.

    gradient  of the micro-batch, before it is added to the others
    shards    of all layers, cast to the compute dtype ahead of their loop
    carries   what each layer begins with, kept for the backward pass
    layer     one layer's weights, gathered
    wide      what is between a layer's matrix products
    saved     products that remat keeps
    head      a chunk's logits, and the words that it meets
    """
    c, t = work.model, work.config.model
    tokens, tensor = work.local_tokens, work.mesh_shape[2]
    size = jnp.dtype(t.dtype).itemsize
    d, h, f = c.hidden_size, c.head_dim, c.intermediate_size
    heads = (c.num_heads + 2 * c.num_kv_heads) * h / tensor
    mlp = f / tensor
    weights, layers = shard_sizes(work.model, work.mesh_shape)
    kept = {
        "full": 0,
        "dots": heads + d + 2 * mlp,
        "none": 2 * heads + 6 * d + 4 * mlp,
    }
    logits = min(t.head_chunk, tokens) * BLOCK * 4
    return {
        "gradient": weights * jnp.dtype(t.param_dtype).itemsize,
        "shards": layers * size,
        "carries": c.num_layers * tokens * d * size,
        "layer": layers * work.mesh_shape[1] / c.num_layers * size,
        "wide": tokens * (heads + 2 * d + 3 * mlp) * size,
        "saved": c.num_layers * tokens * kept[t.remat] * size,
        "head": logits + (BLOCK + tokens) * d * 8,
    }


def estimate(work: Workload) -> Estimate:
    """See the module's docstring."""
    c = work.config
    count, _ = shard_sizes(work.model, work.mesh_shape)
    masters = count * jnp.dtype(c.model.param_dtype).itemsize
    gradients = count * summed_in(c.model.param_dtype).itemsize
    moments = 2 * count * jnp.dtype(c.optimizer.moments_dtype).itemsize
    at_rest = 0 if c.mesh.offload_optimizer else moments
    fitted = FITTED[work.target.chip.platform]
    temporary = sum(fitted[name] * size for name, size in parts(work).items())
    return Estimate(
        masters=masters,
        moments=at_rest,
        accumulate=masters + gradients + at_rest + temporary,
        apply=masters + gradients + moments,
        seconds=_seconds(work),
    )


def _seconds(work: Workload) -> float:
    """Of a token, where operations and links overlap."""
    tokens = work.rows * work.row_length
    squares = tokens * work.row_length / 4
    flops = speed.update_flops(work, tokens, tokens)
    flops += 4.5 * speed.attention_flops(work, squares)
    compute = flops / work.trainer.count / work.trainer.chip.flops
    _, layers = shard_sizes(work.model, work.mesh_shape)
    _, fsdp, tensor = work.mesh_shape
    # Weights are gathered forward and back, again under remat; gradients are reduced.
    passes = 3 if work.config.model.remat == "none" else 4
    links = passes * 2.0 * layers * (fsdp - 1)
    summed = 2 * 2 * (tensor - 1) / tensor * work.local_tokens * work.model.hidden_size
    links += passes * 2 * work.model.num_layers * summed
    return max(compute, links / work.trainer.link_rate(work.trainer.count)) / tokens
