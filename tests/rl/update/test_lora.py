"""Adapters in the update: exact gradients on any mesh, and nothing else is trained."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import lora
from models.decoder import Decoder, abstract_params, init_params, param_shardings
from rl.update.optimizer import make_optimizer
from rl.update.step import make_step
from sharding.rules import put_sharded
from tests.meshes import mesh_of
from tests.rl.update.test_step import (
    CONFIG,
    EPS,
    OBJECTIVE,
    OPTIMIZER,
    _batches,
    _groups,
    _hyper,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

SIZES = lora.Lora(rank=3, alpha=6.0, targets="all")


def _step(mesh, config, dtype, **options):
    model = Decoder(config, mesh=mesh, dtype=dtype, param_dtype=dtype, **options)
    optimizer = make_optimizer(OPTIMIZER, eps=EPS)
    return model, make_step(model, optimizer, OBJECTIVE, head_chunk=16)


def _new_adapters(model):
    shardings = param_shardings(model, model.mesh)
    return lora.init_adapters(abstract_params(model)[0], shardings, 0)


def _with_adapters(mesh, dtype, *, targets="all", **options):
    """Returns a step of adapters that are not zero, what it trains, and the base."""
    sizes = dataclasses.replace(SIZES, targets=targets)
    config = dataclasses.replace(CONFIG, lora=sizes)
    model, step = _step(mesh, config, dtype, **options)
    full = Decoder(CONFIG, mesh=mesh, param_dtype=dtype)
    base = init_params(full, mesh, 0)
    base = jax.tree.map(lambda x: x * 3 if x.ndim > 2 else x, base)
    trained = _new_adapters(model)
    # B is zero at first, and A then has no gradient.
    trained = jax.tree.map(
        lambda x: x + 0.1 * np.random.default_rng(x.size).normal(size=x.shape), trained
    )
    return step, jax.device_put(trained, step.shardings.params), base


def _gradient(step, params, batches):
    placed = [put_sharded(b, step.rows) for b in batches]
    carry = step.zeros(params, placed[0], _hyper())
    for batch in placed:
        carry = step.accumulate(carry, params, batch, _hyper())
    return jax.device_get(carry[0])


@functools.cache
def _full_gradient():
    """The layers with their adapters, and the gradient of the merged weights."""
    with jax.enable_x64(True):
        alone = mesh_of(1, 1, 1)
        _, trained, base = _with_adapters(alone, jnp.float64)
        _, full = _step(alone, CONFIG, jnp.float64)
        layers = lora.join(trained, base)[lora.LAYERS]
        merged = base | {lora.LAYERS: _merged(layers)}
        return jax.device_get(layers), _gradient(full, merged, _batches(_groups()))


@pytest.mark.parametrize(
    "shape, micro_rows, row_length, options",
    [((1, 1, 1), 1, 64, {"remat": "dots"}), ((2, 2, 2), 4, 32, {"remat": "full"})],
)
def test_gradients_follow_the_chain_rule(shape, micro_rows, row_length, options):
    layers, by_weight = _full_gradient()
    with jax.enable_x64(True):
        groups = _groups()
        step, trained, base = _with_adapters(mesh_of(*shape), jnp.float64, **options)
        batches = _batches(groups, row_length=row_length, micro_rows=micro_rows)
        found = _gradient(step, lora.join(trained, base), batches)
    scale = SIZES.alpha / SIZES.rank
    assert len(found[lora.LAYERS]) == 2 * len(SIZES.kernels)
    for name in SIZES.kernels:
        a, b = (np.asarray(layers[name + end]) for end in (lora.A, lora.B))
        rank = SIZES.rank
        d = by_weight[lora.LAYERS][name].reshape(len(a), np.prod(a.shape[1:-1]), -1)
        assert d.dtype == np.float64
        d_a = scale * d @ b.reshape(len(b), rank, -1).swapaxes(1, 2)
        d_b = scale * a.reshape(len(a), -1, rank).swapaxes(1, 2) @ d
        for end, expected in ((lora.A, d_a), (lora.B, d_b)):
            got = found[lora.LAYERS][name + end].reshape(expected.shape)
            largest = np.abs(expected).max()
            assert largest > 1e-6 and np.abs(got - expected).max() <= 1e-10 * largest


def _merged(layers):
    """Merges the adapters of all layers, one layer at a time."""
    names = [name for name in layers if not lora.is_adapter(name)]
    each = range(CONFIG.num_layers)

    def merged(name):
        parts = lora.parts(layers, name)
        return jnp.stack([lora.merge(SIZES, *(x[n] for x in parts)) for n in each])

    return {name: merged(name) for name in names}


@pytest.mark.parametrize("targets, count", [("attention", 4), ("mlp", 3)])
def test_only_the_adapters_of_the_targets_have_state(targets, count):
    step, trained, _ = _with_adapters(mesh_of(), jnp.bfloat16, targets=targets)
    # Two moments to each parameter, and counters.
    arrays = [x for x in jax.tree.leaves(step.init(trained)) if x.ndim]
    assert len(arrays) == 3 * 2 * count


def test_an_update_changes_the_adapters_and_no_frozen_weight():
    step, trained, base = _with_adapters(mesh_of(2, 2, 2), jnp.bfloat16)
    before = jax.device_get(trained)
    state = step.init(trained)
    assert {x.dtype for x in jax.tree.leaves(state.params)} == {np.dtype("float32")}
    assert {x.dtype for x in jax.tree.leaves(base)} == {np.dtype("bfloat16")}
    batches = [put_sharded(b, step.rows) for b in _batches(_groups())]
    state, stats = step.update(state, batches, _hyper(), base)
    assert not stats["skipped"]
    changed = jax.tree.map(lambda a, b: bool((a != b).all()), before, state.params)
    assert len(jax.tree.leaves(changed)) == 14 and all(jax.tree.leaves(changed))


def test_adapters_start_at_the_base_bit_for_bit():
    mesh, dtype = mesh_of(1, 2, 2), jnp.bfloat16
    model, step = _step(mesh, dataclasses.replace(CONFIG, lora=SIZES), dtype)
    full, without = _step(mesh, CONFIG, dtype)
    base = init_params(full, mesh, 0)
    new = _new_adapters(model)
    batch = put_sharded(_batches(_groups())[0], step.rows)
    expected = np.asarray(without.score(base, batch, _hyper()))
    assert expected.any()
    # The second as a reference, without its adapters.
    for params in (lora.join(new, base), base):
        np.testing.assert_array_equal(expected, step.score(params, batch, _hyper()))
