"""The look-up in a split table is the plain one, and so is its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.embedding import look_up
from tests.meshes import mesh_of

VOCAB, WIDTH, TOKENS = 24, 8, 16


@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 2)])
@pytest.mark.parametrize(
    ("ordered", "dtype"), [(False, jnp.float64), (True, jnp.bfloat16)]
)
def test_every_mesh_gives_the_same_rows_and_gradient(shape, dtype, ordered):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        table = jnp.asarray(rng.normal(size=(VOCAB, WIDTH)))
        ids = jnp.asarray(rng.integers(0, VOCAB, TOKENS).astype(np.int32))
        # Halves add up exactly in either dtype.
        weights = jnp.asarray(rng.integers(-8, 8, (TOKENS, WIDTH)) / 2)

        def loss(table, mesh):
            rows = look_up(table, ids, mesh, dtype, ordered=ordered)
            return jnp.sum(rows * weights.astype(dtype), dtype=jnp.float64), rows

        mesh = mesh_of(*shape)
        run = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
        (_, rows), gradient = run(table, mesh)
        assert rows.dtype == dtype
        np.testing.assert_array_equal(rows, table[ids].astype(dtype))
        expected = np.zeros((VOCAB, WIDTH))
        np.add.at(expected, np.asarray(ids), np.asarray(weights))
        np.testing.assert_array_equal(gradient, expected)


def test_an_ordered_gradient_adds_no_float_by_scatter():
    """Only its distinct sums are written into the table."""

    def text(ordered):
        def loss(table, ids):
            return jnp.sum(jnp.sin(look_up(table, ids, None, jnp.float32, ordered)))

        shapes = jnp.zeros((VOCAB, WIDTH)), jnp.zeros(TOKENS, jnp.int32)
        return str(jax.make_jaxpr(jax.grad(loss))(*shapes))

    assert "scatter-add" in text(False)
    assert "scatter-add" not in text(True) and "unique_indices=True" in text(True)
