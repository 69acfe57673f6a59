"""Meshes of the first devices."""

import jax
from jax.sharding import Mesh

from sharding.mesh import make_mesh


def mesh_of(data: int = 1, fsdp: int = 1, tensor: int = 1) -> Mesh:
    devices = jax.devices()[: data * fsdp * tensor]
    return make_mesh(data=data, fsdp=fsdp, tensor=tensor, devices=devices)
