"""Adds low-rank adapters (LoRA, arXiv 2106.09685) to the decoder's kernels.

The decoder uses `W + alpha / rank * A @ B` in place of a kernel `W [in, out]`. Only
`A [in, rank]` and `B [rank, out]` are trained. B is initialized to zero, so the initial
policy equals the base model. In the parameter tree, A and B are stacked over layers and
named after W: `layers/q`, `layers/q_lora_a`, `layers/q_lora_b`.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float

Params = Any
Targets = Literal["attention", "mlp", "all"]

LAYERS = "layers"
A, B = "_lora_a", "_lora_b"
# Kernels, with the number of their leading axes that are inputs.
ATTENTION: Mapping[str, int] = {"q": 1, "k": 1, "v": 1, "o": 2}
MLP: Mapping[str, int] = {"gate": 1, "up": 1, "down": 1}
KERNELS: Mapping[Targets, Mapping[str, int]] = {
    "attention": ATTENTION,
    "mlp": MLP,
    "all": {**ATTENTION, **MLP},
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    rank: int
    alpha: float
    targets: Targets

    @property
    def kernels(self) -> Mapping[str, int]:
        return KERNELS[self.targets]


def adapters(
    module: nn.Module,
    lora: Lora | None,
    name: str,
    axes: Sequence[str],
    shape: Sequence[int],
    dtype: jax.typing.DTypeLike,
) -> tuple[jax.Array, ...]:
    """Declares the adapters A and B of a kernel as parameters of a Flax module.

    A and B have the kernel's dtype, or float32 if that is wider. Returns `()` if the
    kernel has no adapters, or if the module is applied to parameters without adapters.
    """
    if lora is None or name not in lora.kernels:
        return ()
    if not (module.is_initializing() or module.has_variable("params", name + A)):
        return ()
    inputs = lora.kernels[name]
    wide = jnp.promote_types(dtype, jnp.float32)

    def param(suffix, init, axes, shape):
        init = nn.with_logical_partitioning(init, axes)
        return module.param(name + suffix, init, shape, wide)

    zeros = nn.initializers.zeros_init()
    return (
        param(A, _uniform, (*axes[:inputs], None), (*shape[:inputs], lora.rank)),
        param(B, zeros, (None, *axes[inputs:]), (lora.rank, *shape[inputs:])),
    )


def merge(
    lora: Lora | None, weight: Float[jax.Array, "..."], *pair: Float[jax.Array, "..."]
) -> Float[jax.Array, "..."]:
    """Returns `weight + alpha / rank * A @ B`, or `weight` if `pair` is empty."""
    if not pair:
        return weight
    assert lora is not None
    a, b = pair
    # The axis of size 1 makes this a batched product. `remat="dots"` keeps the results
    # of unbatched products; this result is as large as the kernel.
    product = jax.lax.dot_general(
        a.reshape(1, -1, lora.rank),
        b.reshape(1, lora.rank, -1),
        (((2,), (1,)), ((0,), (0,))),
        precision=jax.lax.Precision.HIGHEST,
    )
    scale = lora.alpha / lora.rank
    return weight.astype(product.dtype) + scale * product.reshape(weight.shape)


def parts(layers: Params, name: str) -> tuple[Any, ...]:
    """Returns the arrays of a kernel: `(W, A, B)`, or `(W,)` without adapters."""
    names = (name, name + A, name + B) if name + A in layers else (name,)
    return tuple(layers[name] for name in names)


def is_adapter(name: str) -> bool:
    return name.endswith((A, B))


def split(params: Params) -> tuple[Params, Params]:
    """Returns (adapters, other parameters), or `(params, {})` without adapters."""
    layers = params[LAYERS]
    trained = {name: x for name, x in layers.items() if is_adapter(name)}
    if not trained:
        return params, {}
    frozen = {name: x for name, x in layers.items() if name not in trained}
    return {LAYERS: trained}, params | {LAYERS: frozen}


def join(trained: Params, frozen: Params | None) -> Params:
    """Joins the two parts that `split` returns."""
    if not frozen:
        return trained
    return frozen | {LAYERS: frozen[LAYERS] | trained[LAYERS]}


def init_adapters(shapes: Params, shardings: Params, seed: int) -> Params:
    """Initializes adapters as PEFT does.

    A is uniform between -b and b, with b = 1 / sqrt(number of inputs). B is zero.
    `shapes` and `shardings` are those of the model's parameters. Returns `{}` for a
    model without adapters.
    """
    trained, frozen = split(shapes)
    if not frozen:
        return {}

    def init():
        found = {}
        for number, (name, x) in enumerate(sorted(trained[LAYERS].items())):
            key = jax.random.fold_in(jax.random.key(seed), number)
            make = _uniform if name.endswith(A) else nn.initializers.zeros
            of_layer = functools.partial(make, shape=x.shape[1:], dtype=x.dtype)
            found[name] = jax.vmap(of_layer)(jax.random.split(key, x.shape[0]))
        return {LAYERS: found}

    return jax.jit(init, out_shardings=split(shardings)[0])()


def _uniform(key: jax.Array, shape: Sequence[int], dtype) -> jax.Array:
    bound = 1 / math.sqrt(math.prod(shape[:-1]))
    return jax.random.uniform(key, shape, dtype, -bound, bound)
