"""Computes the sizes of a run's programs from its config and a target."""

import dataclasses
import functools

import jax

from configs.base import RunConfig
from configs.checks import check_config
from models.config import DecoderConfig
from models.decoder import Decoder, Params, abstract_params, param_shardings
from rl.groups.packing import micro_rows
from rl.run_spec import check_sizes
from sharding.mesh import abstract_mesh, resolve_shape
from sharding.rules import shards
from tools.plan.architectures import architecture
from tools.plan.targets import Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    config: RunConfig
    model: DecoderConfig
    target: Target  # the devices of the trainer
    mesh_shape: tuple[int, int, int]  # data, fsdp and tensor
    row_length: int  # T, the largest of `batch.row_lengths`
    rows: int  # R, the number of rows of a micro-batch

    @property
    def local_tokens(self) -> int:
        """The number of tokens of a micro-batch on each device, including padding."""
        mesh = abstract_mesh(self.mesh_shape)
        return self.rows * self.row_length // shards("batch", mesh)

    def flops(self, program: str, tokens: float, length: float) -> float:
        """Returns the FLOPs of the matrix products of `program` for `tokens` tokens.

        `length` is the length of the texts that contain the tokens. For "decode" it is
        the number of cached positions.
        """
        c, remat = self.model, self.config.model.remat
        last = 2.0 * c.num_layers * c.hidden_size * c.intermediate_size * tokens
        heads = 2 * c.num_heads + 2 * c.num_kv_heads
        layers = 2.0 * c.num_layers * c.hidden_size * c.head_dim * heads * tokens
        layers += 3 * last
        head = 2.0 * c.vocab_size * c.hidden_size * tokens
        # The causal half of the products with keys and values.
        attention = 2.0 * c.num_layers * c.num_heads * c.head_dim * tokens * length
        if program == "accumulate":
            # A backward pass has twice the FLOPs of the forward pass, for attention 2.5
            # times. The logits are always recomputed. `full` remat recomputes attention
            # and a layer's other products except the last; `dots` only attention.
            layers = 3 * layers + (layers - last if remat == "full" else 0)
            attention *= 3.5 if remat == "none" else 4.5
            return layers + 4 * head + attention
        if program == "decode":
            return layers + head + 2 * attention
        return layers + (head if program == "score" else 0) + attention


def make_workload(config: RunConfig, target: Target) -> Workload:
    """Checks a config against a target and returns the workload.

    Raises:
      ValueError: the config is invalid or does not suit the target, or the model's
        architecture cannot be read.
    """
    check_config(config, needs_data=False)
    m = config.mesh
    try:
        mesh_shape = resolve_shape(
            target.count, data=m.data, fsdp=m.fsdp, tensor=m.tensor
        )
    except ValueError as error:
        raise ValueError(f"--target={target}: {error}") from None
    model = architecture(config)
    check_sizes(config, model, mesh_shape)
    shard_shapes(model, mesh_shape)
    length = max(config.batch.row_lengths)
    multiple = shards("batch", abstract_mesh(mesh_shape))
    return Workload(
        config=config,
        model=model,
        target=target,
        mesh_shape=mesh_shape,
        row_length=length,
        rows=micro_rows(length, config.batch.micro_tokens, multiple),
    )


@functools.lru_cache
def shard_shapes(model: DecoderConfig, mesh_shape: tuple[int, int, int]) -> Params:
    """Returns the shape that each parameter has on one device.

    Raises:
      ValueError: the mesh does not divide a dimension of a parameter.
    """
    trained = Decoder(model)
    return jax.tree.map(
        lambda x, sharding: x.update(shape=sharding.shard_shape(x.shape)),
        abstract_params(trained)[0],
        param_shardings(trained, abstract_mesh(mesh_shape)),
    )
