"""Shards that are alike are one buffer, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sharding.mesh import make_mesh
from sharding.replicas import share_replicas


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("spec", "buffers"), [(P(), 1), (P("fsdp"), 4), (P("fsdp", "tensor"), 8)]
)
def test_equal_shards_are_one_buffer(spec, buffers, dtype):
    mesh = make_mesh(data=1, fsdp=4, tensor=2)
    values = jnp.arange(64, dtype=dtype).reshape(8, 8)
    made = jax.jit(lambda x: x + 0, out_shardings=NamedSharding(mesh, spec))(values)

    def addresses(array):
        shards = array.addressable_shards
        return {shard.data.unsafe_buffer_pointer() for shard in shards}

    shared = share_replicas({"w": made})["w"]
    assert (len(addresses(made)), len(addresses(shared))) == (8, buffers)
    assert (shared.sharding, shared.dtype) == (made.sharding, made.dtype)
    np.testing.assert_array_equal(jax.jit(lambda x: 2 * x)(shared), 2 * values)


def test_what_it_was_made_from_may_be_donated():
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    values = np.arange(1024.0, dtype=np.float32)
    made = jax.device_put(values, NamedSharding(mesh, P()))
    shared = share_replicas(made)
    changed = jax.jit(lambda x: 2 * x, donate_argnums=0)(made)
    np.testing.assert_array_equal(changed, 2 * values)
    np.testing.assert_array_equal(shared, values)
