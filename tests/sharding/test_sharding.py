"""Meshes and logical axes: strict, and errors that say which."""

import math

import jax
import pytest
from jax.sharding import PartitionSpec as P

from sharding.mesh import arranged, make_mesh, resolve_shape
from sharding.rules import partition_spec


def test_one_axis_takes_what_the_others_leave():
    assert resolve_shape(8, data=1, fsdp=-1, tensor=2) == (1, 4, 2)
    assert resolve_shape(8, data=-1, fsdp=1, tensor=1) == (8, 1, 1)
    mesh = make_mesh(data=2, fsdp=-1, tensor=2)
    assert dict(mesh.shape) == {"data": 2, "fsdp": 2, "tensor": 2}


@pytest.mark.parametrize(
    "data,fsdp,message",
    [
        (3, 1, "is 3, but the number of devices is 8"),
        (3, -1, "other two, 3, must divide the number of devices, 8"),
        (-1, -1, "must be at least 1; one may be -1"),
        (0, 8, "data=0 .*must be at least 1"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(data, fsdp, message):
    with pytest.raises(ValueError, match=message):
        resolve_shape(8, data=data, fsdp=fsdp, tensor=1)


class _Gpu:
    """As JAX shows a GPU: each node is a slice."""

    platform = device_kind = "gpu"

    def __init__(self, number):
        self.id, self.process_index = number, number // 8
        self.slice_index = number // 8


class _Tpu:
    """A v5e of slices of 4x4."""

    platform, device_kind, core_on_chip = "tpu", "TPU v5 lite", 0

    def __init__(self, number):
        self.id, self.process_index = number, number // 4
        self.slice_index, here = divmod(number, 16)
        self.coords = (here % 4, here // 4, 0)


@pytest.mark.parametrize(
    "kind,slices,shape",
    [
        (_Gpu, 1, (1, 8, 1)),
        (_Gpu, 2, (1, 16, 1)),
        (_Gpu, 2, (2, 8, 1)),
        (_Gpu, 2, (1, 2, 8)),
        (_Gpu, 4, (2, 8, 2)),
        (_Gpu, 3, (6, 4, 1)),
        (_Tpu, 1, (1, 16, 1)),
        (_Tpu, 2, (1, 32, 1)),
        (_Tpu, 2, (4, 2, 4)),
    ],
)
def test_a_mesh_over_several_slices_or_nodes(kind, slices, shape):
    # jax.make_mesh refuses more than one: no run on two nodes would start.
    devices = [kind(number) for number in range(math.prod(shape))]
    assert len({device.slice_index for device in devices}) == slices
    mesh = arranged(shape, devices)
    assert mesh.shape == shape
    assert {device.id for device in mesh.flat} == set(range(len(devices)))
    for group in mesh.reshape(-1, shape[2]):
        assert len({device.slice_index for device in group}) == 1


def test_a_tensor_group_crosses_no_slice():
    with pytest.raises(ValueError, match="data=1 fsdp=1 tensor=16.*of the 2 slices"):
        arranged((1, 1, 16), [_Gpu(number) for number in range(16)])


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(data=1, fsdp=4, tensor=2, devices=jax.devices())


def test_names_resolve(mesh):
    axes = ("layers", "embed", "heads", "head_dim")
    spec = partition_spec(axes, mesh, shape=(2, 8, 4, 16))
    assert spec == P(None, "fsdp", "tensor", None)
    spec = partition_spec(("batch", None), mesh, shape=(8, 3))
    assert spec == P(("data", "fsdp"), None)


@pytest.mark.parametrize(
    "axes,shape,message",
    [
        (("embd",), (8,), "unknown logical axis 'embd'"),
        (("heads", "mlp"), (4, 4), "w: mesh axis 'tensor' is used by both 'heads' and"),
        (("batch", "embed"), (8, 8), "w: mesh axis 'fsdp' is used by both"),
        (("kv_heads",), (3,), "w: dimension 'kv_heads' of size 3 must be a multiple"),
        (("embed",), (8, 8), "w: has 1 logical axes"),
    ],
)
def test_what_flax_lets_pass_is_an_error_here(mesh, axes, shape, message):
    with pytest.raises(ValueError, match=message):
        partition_spec(axes, mesh, shape=shape, name="w")
