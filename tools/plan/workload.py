"""A training config and a target, resolved to the sizes that programs have."""

import dataclasses
import functools
import math

import jax
from ml_collections import ConfigDict

from configs.base import from_config
from configs.schema import take
from models.config import Qwen2Config
from models.qwen2 import LAYERS, Qwen2, abstract_params, param_shardings
from rl.batches.packing import micro_rows
from rl.plan import check_positions, check_rollout, check_sizes
from sharding.mesh import SIZES, abstract_mesh, resolve_shape
from sharding.rules import shards
from tools.plan.architectures import architecture
from tools.plan.targets import Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """What a run asks of its devices.

    Attributes:
      config: of the run.
      model: its architecture.
      target: all devices.
      trainer: those with the trainer; the others are vLLM's.
      mesh_shape: data, fsdp, tensor of the trainer.
      row_length: T, of the longest rows.
      rows: R, rows of one micro-batch.
    """

    config: ConfigDict
    model: Qwen2Config
    target: Target
    trainer: Target
    mesh_shape: tuple[int, int, int]
    row_length: int
    rows: int

    @property
    def servers(self) -> int:
        """Devices that vLLM has."""
        return self.target.count - self.trainer.count

    @property
    def embedded(self) -> bool:
        return self.config.rollout.backend == "jax"

    @property
    def local_tokens(self) -> int:
        """Tokens of a micro-batch on each device, padding included."""
        return self.rows * self.row_length // shards("batch", self.mesh)

    @property
    def mesh(self):
        """Without devices, to ask the table of layouts."""
        return abstract_mesh(self.mesh_shape)

    @property
    def updates_per_step(self) -> int:
        b = self.config.batch
        return b.ppo_epochs * b.prompts_per_step // b.prompts_per_update


def make_workload(config: ConfigDict, target: Target) -> Workload:
    """Checks a config against a target.

    Raises:
      ValueError: one line that names the key and the offending value.
    """
    from_config(config)
    take(check_rollout, config.rollout)()
    trainer = target.first(_trainers(config, target))
    try:
        mesh_shape = take(resolve_shape, config.mesh)(trainer.count)
    except ValueError as error:
        raise ValueError(f"config.mesh on {target}: {error}") from None
    check_sizes(config, mesh_shape)
    model = architecture(config)
    check_positions(config, model)
    shard_sizes(model, mesh_shape)
    length = max(config.batch.row_lengths)
    multiple = shards("batch", abstract_mesh(mesh_shape))
    return Workload(
        config=config,
        model=model,
        target=target,
        trainer=trainer,
        mesh_shape=mesh_shape,
        row_length=length,
        rows=micro_rows(length, config.batch.micro_tokens, multiple),
    )


@functools.lru_cache
def shard_sizes(
    model: Qwen2Config, mesh_shape: tuple[int, int, int]
) -> tuple[int, int]:
    """Parameters on each device: of all, and of the layers.

    Raises:
      ValueError: a dimension that the mesh does not divide; names it.
    """
    trained = Qwen2(model)
    local = jax.tree.map(
        lambda x, sharding: math.prod(sharding.shard_shape(x.shape)),
        abstract_params(trained)[0],
        param_shardings(trained, abstract_mesh(mesh_shape)),
    )
    return sum(jax.tree.leaves(local)), sum(jax.tree.leaves(local[LAYERS]))


def _trainers(config: ConfigDict, target: Target) -> int:
    """Devices of the trainer; with vLLM on the same machine not all of them."""
    r = config.rollout
    if r.backend == "jax" or r.vllm.url:
        return target.count
    sizes = {axis: config.mesh[axis] for axis in SIZES}
    if all(size > 0 for size in sizes.values()):
        count = math.prod(sizes.values())
    elif r.vllm.devices:
        sets = r.vllm.devices.replace(";", ",").split(",")
        count = target.count - len({gpu.strip() for gpu in sets})
    else:
        raise ValueError(
            f"config.mesh={sizes} beside"
            " config.rollout.backend='vllm' leaves open which devices train: give all"
            " three sizes, or config.rollout.vllm.devices"
        )
    if not 0 < count < target.count:
        raise ValueError(
            f"config.mesh={sizes}: a trainer on {count} of the {target.count} devices"
            f" of {target} leaves none to vLLM's servers"
        )
    return count
