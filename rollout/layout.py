"""Chooses the shapes and the layout of the sampler's weights, cache and slots.

A copy of the weights is split over the fewest devices that hold it with its part of the
cache. Each copy has its own slots. Weights move only when they are published.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from configs.schema import Count, Index
from models.decoder import Decoder
from models.inference import InferenceDecoder, abstract_served, served_config
from sharding.mesh import platform, served_mesh
from sharding.rules import shards

# Slots are refilled when this part of them is free: each refill is a round trip.
_REFILL_PART = 8
# Share of a device's memory that is left to programs and the runtime.
_SPARE = 0.1
# Prompts that are read together are replicated on every copy. Their limit, for any
# number of copies: the tokens that 8 copies read, or an eighth of a copy's cache.
_READERS = 8
_READ_PART = 8


class Pace(NamedTuple):
    """A platform's settings of the decode loop.

    Attributes:
      layers: whether all layers are in one array and one loop.
      columns: of the cache, read at a time; 0: all.
      tokens: drawn between two checks of what has ended.
      call: most tokens of one call; signals are handled after it.
      read: tokens of prompts that each copy reads at a time, enough for its matrix
        products. One longer prompt, or many copies, change it.
      page: the least common prefix of all prompts that is cached once for all slots;
        0: never, where a kernel reads the cache.
      parts: decode batches are the slots divided by these. Each is a compile before
        the first token.
      one_pass: see `rollout.inverse_cdf.draw_tokens`.
    """

    layers: bool
    columns: int
    tokens: int
    call: int
    read: int
    page: int = 0
    parts: tuple[int, ...] = (8, 4, 2, 1)
    one_pass: bool = False


# A TPU reads slices of a stacked array in place; GPUs and CPUs copy them first. A call
# takes about a second.
_PACES = {
    "cpu": Pace(layers=False, columns=0, tokens=1, call=4, read=1024, page=64),
    "gpu": Pace(
        layers=False,
        columns=64,
        tokens=8,
        call=64,
        read=2048,
        parts=(4, 1),
        one_pass=True,
    ),
    "tpu": Pace(
        layers=True, columns=256, tokens=8, call=64, read=2048, page=64, parts=(4, 1)
    ),
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The sampler's shapes, on the devices of the model in training.

    Attributes:
      trained: on its mesh.
      tensor: devices that share one copy.
      slots: most completions decoded together.
      prompt_length, response_length: one set of programs serves all calls up to these;
        longer ones have shapes of their own.
      page: length of the prefix of all prompts, cached once for all slots. Calls with
        other prompts compile other shapes.
      begun: whether calls continue partial completions.
      bucket: lengths are rounded up to it; longer ones to it times a power of two.
      pace: of the decode loop.
    """

    trained: Decoder
    tensor: int
    slots: int
    prompt_length: int
    response_length: int
    page: int
    begun: bool
    pace: Pace
    bucket: int = 64

    @functools.cached_property
    def mesh(self) -> Mesh:
        assert self.trained.mesh is not None
        return served_mesh(self.trained.mesh, self.tensor)

    @functools.cached_property
    def model(self) -> InferenceDecoder:
        config = served_config(self.trained.config, self.tensor)
        return InferenceDecoder(
            config,
            self.mesh,
            dtype=self.trained.dtype,
            attention=self.trained.attention,
            stacked=config.num_layers if self.pace.layers else 1,
            # On a GPU only the kernel reads blocks: a loop of XLA's with an unknown
            # length waits for the host after each block.
            cache_block=self.pace.columns if self._by_blocks else 0,
        )

    @property
    def _by_blocks(self) -> bool:
        return self.trained.attention == "triton" or platform(self.mesh) != "gpu"

    @functools.cached_property
    def copies(self) -> int:
        return shards("batch", self.mesh)

    def lengths(self, prompt: int, response: int, page: int) -> tuple[int, int]:
        """Returns the columns of the cache, and the tokens of a slot.

        Args:
          prompt: tokens of the longest prompt.
          response: most new tokens.
          page: tokens of the prompt that are held once for all.
        """
        prompt = self._known(prompt, self.prompt_length)
        response = self._known(response, self.response_length)
        step = self.pace.columns or self.bucket
        columns = _round_up(prompt - page + response, step)
        return columns, _round_up(response, self.bucket)

    def _known(self, length: int, known: int) -> int:
        if length <= known:
            return known
        bucket = self.bucket
        while bucket < length:
            bucket *= 2
        return min(bucket, max(self.trained.config.max_positions, length))

    def batches(self) -> list[int]:
        """The sizes of the decode batch, ascending."""
        return sorted({self.rows(max(1, self.slots // n)) for n in self.pace.parts})

    def batch(self, completions: int) -> int:
        """Returns the smallest batch that takes all completions, or all slots."""
        sizes = self.batches()
        return next((size for size in sizes if size >= completions), sizes[-1])

    def narrower(self, batch: int) -> int:
        """The next smaller size of the decode batch, or 0."""
        return max((size for size in self.batches() if size < batch), default=0)

    def refill(self, batch: int) -> int:
        """Completions that one insertion begins."""
        return max(1, batch // _REFILL_PART)

    def prefill(self, batch: int, prompt: int) -> tuple[int, int]:
        """Returns the rows in which prompts are read together, and their positions.

        One row for each copy, as long as the prompts of one insertion. With many copies
        rows are shorter, and then fewer.

        Args:
          batch: completions decoded together.
          prompt: tokens of the longest prompt.
        """
        return self._reading(batch, self._known(prompt, self.prompt_length))

    def prefill_begun(self, batch: int, columns: int, page: int) -> tuple[int, int]:
        """Returns the same for prompts with partial completions.

        Args:
          batch: completions decoded together.
          columns, page: of the cache.
        """
        return self._reading(batch, page + columns)

    def _reading(self, batch: int, longest: int) -> tuple[int, int]:
        most = max(_READERS * self.pace.read, self.cached // _READ_PART)
        needed = self.refill(batch) // self.copies * longest
        each = most // self.copies // self.bucket * self.bucket
        length = max(longest, min(needed, self.pace.read, each))
        length = _round_up(length, self.bucket)
        return min(self.copies, max(1, most // max(1, length))), length

    @property
    def cached(self) -> int:
        """Positions in the cache of each copy's slots."""
        columns, _ = self.lengths(0, 0, self.page)
        return self.rows(self.slots) // self.copies * columns

    def rows(self, count: int) -> int:
        """Rounds up to a multiple of the copies."""
        return _round_up(count, self.copies)


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


def device_bytes(tree) -> int:
    """Returns the bytes of these arrays' shards, or of their shapes', on a device."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
        if x.sharding.memory_kind != "pinned_host"
    )


def device_memory(mesh: Mesh) -> int | None:
    """Returns the bytes that programs may use on a device; None if unknown.

    It is the least of all processes, which must choose the same layout: all call this.
    """
    stats = mesh.local_devices[0].memory_stats() or {}
    # In MiB: JAX's integers have 32 bits.
    mine = np.int32(stats.get("bytes_limit", 0) >> 20)
    least = int(np.min(multihost_utils.process_allgather(mine)))
    return least << 20 or None


def make_layout(
    trained: Decoder,
    *,
    slots: Count,
    tensor: Index = 0,
    prompt_length: int = 0,
    response_length: int = 0,
    common: int = 0,
    begun: bool = False,
    room: int | None = None,
    pace: Pace | None = None,
) -> Layout:
    """Makes the layout with the fewest devices to a copy, or with `tensor` of them.

    Args:
      trained: on its mesh.
      slots, prompt_length, response_length, begun: of `Layout`.
      common: tokens that all prompts begin with; a page if there are enough.
      tensor: 0: the fewest that hold weights and cache.
      room: bytes of a device that the sampler may take; None: unlimited.
      pace: None: the platform's.

    Raises:
      ValueError: no number of devices holds a copy, or `tensor` devices cannot.
    """
    assert trained.mesh is not None
    c, devices = trained.config, trained.mesh.size
    pace = pace or _PACES[platform(trained.mesh)]
    page = common if 0 < pace.page <= common else 0
    usable = math.inf if room is None else (1 - _SPARE) * room
    sizes = {
        "devices": devices,
        "intermediate_size": c.intermediate_size,
        "vocab_size": c.vocab_size,
    }
    needs = {}
    for count in [tensor] if tensor else range(1, devices + 1):
        odd = {name: size for name, size in sizes.items() if size % count}
        if odd and tensor:
            name, size = odd.popitem()
            raise ValueError(
                f"config.rollout.tensor={tensor}: does not divide {name}={size}"
            )
        if odd:
            continue
        layout = Layout(
            trained,
            count,
            slots,
            prompt_length=prompt_length,
            response_length=response_length,
            page=page,
            begun=begun,
            pace=pace,
        )
        if tensor:
            return layout
        needs[count] = layout_bytes(layout)
        if needs[count] <= usable:
            return layout
    raise ValueError(
        f"config.rollout.slots={slots}: weights and cache of the sampler take"
        f" {min(needs.values()) / 2**30:.1f} GiB of each device, and"
        f" {usable / 2**30:.1f} are left"
    )


def layout_bytes(layout: Layout) -> int:
    """Returns the bytes on each device of weights, cache, and what is replicated.

    Replicated are the keys and values of one prefill, and the results of all slots.
    """
    config = layout.model.config
    columns, width = layout.lengths(0, 0, layout.page)
    batch = layout.rows(layout.slots)
    positions = layout.cached + layout.page
    read = [layout.prefill(batch, 0)]
    if layout.begun:
        read.append(layout.prefill_begun(batch, columns, layout.page))
    positions += max(math.prod(shape) for shape in read)
    heads = config.num_kv_heads // layout.tensor
    entries = 2 * config.num_layers * heads * config.head_dim * positions
    # Of each slot: done, count, tokens and their log-probabilities.
    drawn = batch * (1 + 4 + (4 + 4) * width)
    shapes, shardings = abstract_served(layout.model)
    weights = device_bytes(placed(shapes, shardings))
    return weights + entries * jnp.dtype(layout.model.dtype).itemsize + drawn


def placed(shapes, shardings):
    """Returns shapes with their layouts."""
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        shapes,
        shardings,
    )
