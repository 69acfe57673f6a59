"""Chooses the shapes and shardings of the sampler's weights, cache and slots.

By default, a copy of the weights is split over the fewest devices whose memory holds
the copy and its part of the cache. Each copy has its own slots.
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

from models.config import DecoderConfig
from models.decoder import Decoder
from models.inference import InferenceDecoder, abstract_served, served_config
from sharding.mesh import platform, served_mesh
from sharding.rules import shards

# Slots are refilled when 1/8 of them are free, because each refill is a round trip.
_REFILL_PART = 8
# Lengths are rounded up to a multiple of this. Those above the compiled lengths are
# rounded up to this times a power of two, at most to the model's context.
_BUCKET = 64
# Share of a device's memory that is left for programs and the runtime.
_SPARE = 0.1
# The results of a prefill are replicated on every copy. A prefill is therefore limited
# to 8 times `PlatformSettings.read`, or to 1/8 of a copy's cache if that is more.
_READERS = 8
_READ_PART = 8


class PlatformSettings(NamedTuple):
    """Holds the settings of prefill and decode for a platform."""

    layers: bool  # stack all layers in one array, with a loop over layers
    columns: int  # cache columns read at a time; 0 for all
    tokens: int  # tokens per slot between two checks for ended completions
    call: int  # maximum tokens per slot in one call; signals are handled between calls
    # Maximum number of prompt tokens that each copy prefills at a time; lower with many
    # copies. A longer prompt is prefilled as a whole.
    read: int
    # Minimum length of a common prefix of all prompts that is cached once for all
    # slots; 0 disables this, as the GPU kernel requires.
    min_prefix: int = 0
    parts: tuple[int, ...] = (8, 4, 2, 1)  # numbers of slots: `slots` divided by each
    one_pass: bool = False  # see `rollout.inverse_cdf.draw_tokens`


_CPU = PlatformSettings(
    layers=False, columns=0, tokens=1, call=4, read=1024, min_prefix=64
)
# TPUs read slices of a stacked array in place; GPUs and CPUs copy them first.
_TPU = PlatformSettings(
    layers=True, columns=256, tokens=8, call=64, read=2048, min_prefix=64, parts=(4, 1)
)
_GPU = _TPU._replace(layers=False, columns=64, min_prefix=0, one_pass=True)
_SETTINGS = {"cpu": _CPU, "gpu": _GPU, "tpu": _TPU}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Describes the shapes of the sampler's arrays on the devices of the trained model.

    Longer prompts or responses, or a shorter common prefix, need further compilation.
    """

    trained: Decoder  # the model in training, with its mesh
    tensor: int  # number of devices that share one copy of the weights
    # Maximum number of completions decoded together, before it is rounded up to a
    # multiple of the number of copies.
    slots: int
    prompt_length: int  # the lengths that the programs are compiled for
    response_length: int
    prefix: int  # length of the common prefix of all prompts; 0: none is cached
    partial: bool  # whether calls continue partial completions
    settings: PlatformSettings

    @functools.cached_property
    def mesh(self) -> Mesh:
        assert self.trained.mesh is not None
        return served_mesh(self.trained.mesh, self.tensor)

    @functools.cached_property
    def model(self) -> InferenceDecoder:
        config = served_config(self.trained.config, self.tensor)
        # On GPU only the kernel reads blocks of columns: an XLA loop of dynamic length
        # waits for the host after each block.
        gpu = platform(self.mesh) == "gpu"
        by_blocks = self.trained.attention == "triton" or not gpu
        return InferenceDecoder(
            config,
            self.mesh,
            dtype=self.trained.dtype,
            attention=self.trained.attention,
            stacked=config.num_layers if self.settings.layers else 1,
            cache_block=self.settings.columns if by_blocks else 0,
            joins=gpu,
        )

    @functools.cached_property
    def copies(self) -> int:
        return shards("batch", self.mesh)

    def lengths(self, prompt: int, response: int, prefix: int) -> tuple[int, int]:
        """Returns a slot's number of cache columns and maximum number of new tokens."""
        prompt = self._known(prompt, self.prompt_length)
        response = self._known(response, self.response_length)
        step = self.settings.columns or _BUCKET
        columns = _round_up(prompt - prefix + response, step)
        return columns, _round_up(response, _BUCKET)

    def _known(self, length: int, known: int) -> int:
        if length <= known:
            return known
        bucket = _BUCKET
        while bucket < length:
            bucket *= 2
        return min(bucket, max(self.trained.config.max_positions, length))

    def slot_counts(self) -> list[int]:
        return sorted({self.rows(max(1, self.slots // n)) for n in self.settings.parts})

    def slots_for(self, completions: int) -> int:
        """Returns the smallest number of slots >= `completions`, or the largest."""
        sizes = self.slot_counts()
        return next((size for size in sizes if size >= completions), sizes[-1])

    def fewer_slots(self, num_slots: int) -> int:
        """Returns the next smaller number of slots, or 0 if there is none."""
        return max((size for size in self.slot_counts() if size < num_slots), default=0)

    def refill(self, num_slots: int) -> int:
        return max(1, num_slots // _REFILL_PART)

    def prefill_shape(self, num_slots: int, prompt: int) -> tuple[int, int]:
        """Returns the number and length of the rows for a prefill.

        The rows are packed with prompts of up to `prompt` tokens.
        """
        return self._reading(num_slots, self._known(prompt, self.prompt_length))

    def partial_shape(
        self, num_slots: int, columns: int, prefix: int
    ) -> tuple[int, int]:
        return self._reading(num_slots, prefix + columns)

    def _reading(self, num_slots: int, longest: int) -> tuple[int, int]:
        # Each copy prefills one row for its share of one insertion. With many copies,
        # rows are shorter, and if needed fewer, to limit the number of tokens.
        most = max(_READERS * self.settings.read, self.cached // _READ_PART)
        needed = self.refill(num_slots) // self.copies * longest
        each = most // self.copies // _BUCKET * _BUCKET
        length = max(longest, min(needed, self.settings.read, each))
        length = _round_up(length, _BUCKET)
        return min(self.copies, max(1, most // max(1, length))), length

    @property
    def cached(self) -> int:
        """Returns the number of cache columns in all slots of a copy of the weights."""
        columns, _ = self.lengths(0, 0, self.prefix)
        return self.rows(self.slots) // self.copies * columns

    def rows(self, count: int) -> int:
        """Rounds `count` up to a multiple of `copies`, the number of weight copies."""
        return _round_up(count, self.copies)


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


def device_bytes(tree) -> int:
    """Returns the bytes per device of arrays, or of shapes with shardings.

    Arrays in pinned host memory are not counted.
    """
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
        if x.sharding.memory_kind != "pinned_host"
    )


def device_memory(mesh: Mesh) -> int | None:
    """Returns the bytes that programs may use on a device; None if unknown.

    The result is the minimum over all processes, which must all call this function.
    """
    stats = mesh.local_devices[0].memory_stats() or {}
    # In MiB, because JAX's integers have 32 bits.
    mine = np.int32(stats.get("bytes_limit", 0) >> 20)
    least = int(np.min(multihost_utils.process_allgather(mine)))
    return least << 20 or None


def make_layout(
    trained: Decoder,
    *,
    slots: int,
    tensor: int = 0,
    prompt_length: int = 0,
    response_length: int = 0,
    common: int = 0,
    partial: bool = False,
    room: int | None = None,
    settings: PlatformSettings | None = None,
) -> Layout:
    """Creates a layout that fits in memory, or one with `tensor` devices per copy.

    Args:
      slots, prompt_length, response_length, partial: the attributes of `Layout`.
      common: the length of the common prefix of all prompts, which is cached once if
        `PlatformSettings.min_prefix` allows this.
      tensor: the number of devices per copy of the weights, used even if memory does
        not suffice; 0 chooses the minimum that suffices.
      room: the bytes per device available to the sampler; None for unlimited.
      settings: the settings of prefill and decode; None for those of the platform.

    Raises:
      ValueError: `tensor` does not divide the devices, MLP width or vocabulary; or it
        is 0, and a copy does not fit in memory with any number of devices.
    """
    assert trained.mesh is not None
    c, devices = trained.config, trained.mesh.size
    settings = settings or _SETTINGS[platform(trained.mesh)]
    prefix = common if 0 < settings.min_prefix <= common else 0
    usable = math.inf if room is None else (1 - _SPARE) * room
    if tensor:
        check_tensor(tensor, c, devices)
    needs = {}
    for count in [tensor] if tensor else range(1, devices + 1):
        if _undivided(count, c, devices):
            continue
        layout = Layout(
            trained=trained,
            tensor=count,
            slots=slots,
            prompt_length=prompt_length,
            response_length=response_length,
            prefix=prefix,
            partial=partial,
            settings=settings,
        )
        if tensor:
            return layout
        needs[count] = layout_bytes(layout)
        if needs[count] <= usable:
            return layout
    raise ValueError(
        f"config.rollout.slots={slots}: the sampler's weights and cache need at least"
        f" {min(needs.values()) / 2**30:.1f} GiB per device, but only"
        f" {usable / 2**30:.1f} GiB are available; use fewer slots"
        " (--slots in the tools) or more devices"
    )


def check_tensor(tensor: int, config: DecoderConfig, devices: int) -> None:
    if wrong := _undivided(tensor, config, devices):
        raise ValueError(f"config.rollout.tensor={tensor}: must divide {wrong[0]}")


def _undivided(count: int, config: DecoderConfig, devices: int) -> list[str]:
    """Returns "NAME=SIZE" of each size that `count` does not divide."""
    sizes = {
        "vocab_size": config.vocab_size,
        "intermediate_size": config.intermediate_size,
        "the number of devices": devices,
    }
    return [f"{name}={size}" for name, size in sizes.items() if size % count]


def layout_bytes(layout: Layout) -> int:
    """Returns the bytes per device of the weights, the cache and replicated arrays.

    The replicated arrays are keys and values of one prefill, and results of all slots.
    """
    config = layout.model.config
    columns, width = layout.lengths(0, 0, layout.prefix)
    num_slots = layout.rows(layout.slots)
    positions = layout.cached + layout.prefix
    read = [layout.prefill_shape(num_slots, 0)]
    if layout.partial:
        read.append(layout.partial_shape(num_slots, columns, layout.prefix))
    positions += max(math.prod(shape) for shape in read)
    heads = config.num_kv_heads // layout.tensor
    entries = 2 * config.num_layers * heads * config.head_dim * positions
    # Bytes of each slot: done, count, and token ids with log-probabilities.
    drawn = num_slots * (1 + 4 + (4 + 4) * width)
    shapes, shardings = abstract_served(layout.model)
    weights = device_bytes(with_shardings(shapes, shardings))
    return weights + entries * jnp.dtype(layout.model.dtype).itemsize + drawn


def with_shardings(shapes, shardings):
    """Returns the shapes, dtypes and shardings of arrays as `jax.ShapeDtypeStruct`."""
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        shapes,
        shardings,
    )
