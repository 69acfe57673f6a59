"""Describes accelerator chips, and targets, which are sets of chips."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Literal

import jax
from jax.experimental import topologies

from rl.errors import one_line
from rl.processes.devices import GPU_SHARE


@dataclasses.dataclass(frozen=True)
class Chip:
    """Describes a type of accelerator. Sizes are in bytes, bandwidths in bytes/s."""

    dimensions: int  # number of sizes in a target's shape; see `Target.shape`
    flops: float  # dense bfloat16 FLOP/s
    hbm: int  # memory bandwidth
    links: float  # bandwidth within a node or slice, sending plus receiving
    memory: int  # as the compiler counts it
    # The fields below are 0 for TPUs.
    compute_capability: int = 0  # major version
    cache: int = 0  # L2 cache
    cores: int = 0  # number of multiprocessors
    ghz: float = 0.0  # clock of the multiprocessors
    fpus: int = 0  # per multiprocessor
    shared_memory: int = 0  # per multiprocessor

    @property
    def platform(self) -> Literal["tpu", "cuda"]:
        return "cuda" if self.compute_capability else "tpu"


# Rates are those of the makers' data sheets, memory sizes those of the compilers.
CHIPS = {
    "v5e": Chip(2, 197e12, 819_000_000_000, 200e9, 16_911_433_728),
    "v5p": Chip(3, 459e12, 2_765_000_000_000, 600e9, 102_800_042_229),
    "v6e": Chip(2, 918e12, 1_640_000_000_000, 448e9, 33_554_432_000),
    "a100": Chip(
        2, 312e12, 2_039_040_000_000, 600e9, 85_100_068_864,
        8, 41_943_040, 108, 1.41, 64, 167_936,
    ),
    "h100": Chip(
        2, 989e12, 3_352_320_000_000, 900e9, 84_942_979_072,
        9, 52_428_800, 132, 1.98, 128, 233_472,
    ),
    "h200": Chip(
        2, 989e12, 4_800_000_000_000, 900e9, 151_397_597_184,
        9, 52_428_800, 132, 1.98, 128, 233_472,
    ),
    "b200": Chip(
        2, 2250e12, 7_672_320_000_000, 1800e9, 191_514_411_008,
        10, 132_644_864, 148, 1.965, 128, 233_472,
    ),
}  # fmt: skip
# Share of the memory for programs. The rest is for the runtime, buffers of collectives
# and fragmentation.
_USABLE = {"tpu": 0.95, "cuda": GPU_SHARE}
_NETWORK = 50e9  # bytes/s from a GPU to other nodes: one 400 Gb/s adapter per GPU


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """Represents a TPU slice, or nodes of GPUs."""

    name: str  # a key of CHIPS
    shape: tuple[int, ...]  # of the TPU slice, or (nodes, GPUs per node)

    def __str__(self) -> str:
        shape = self.shape
        if self.chip.platform == "cuda" and shape[0] == 1:
            shape = shape[1:]
        return f"{self.name}:{'x'.join(map(str, shape))}"

    @property
    def chip(self) -> Chip:
        return CHIPS[self.name]

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def usable(self) -> int:
        """Bytes of each device that programs may use."""
        return int(self.chip.memory * _USABLE[self.chip.platform])

    @property
    def description(self) -> str:
        """A `GpuTargetConfigProto` for the CUDA compiler, as text; empty for a TPU."""
        c = self.chip
        if c.platform == "tpu":
            return ""
        optin = c.shared_memory - 1024
        # JAX expects the driver's name of a GPU, such as "NVIDIA H100".
        return f"""gpu_device_info {{
      threads_per_block_limit: 1024 threads_per_warp: 32
      shared_memory_per_block: 49152 shared_memory_per_core: {c.shared_memory}
      threads_per_core_limit: 2048 core_count: {c.cores} fpus_per_core: {c.fpus}
      block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
      memory_bandwidth: {c.hbm} l2_cache_size: {c.cache} clock_rate_ghz: {c.ghz}
      device_memory_size: {c.memory} shared_memory_per_block_optin: {optin}
      cuda_compute_capability {{ major: {c.compute_capability} }}
      registers_per_core_limit: 65536 registers_per_block_limit: 65536 }}
    platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }}
    device_description_str: "NVIDIA {self.name.upper()}" """

    def link_rate(self, reach: int) -> float:
        """Returns the bytes/s that a chip can send to its group in a collective.

        `reach` is the number of chips from the first to the last one of the group, both
        included.
        """
        leaves_node = self.chip.platform == "cuda" and reach > self.shape[-1]
        return min(self.chip.links / 2, _NETWORK if leaves_node else math.inf)


def parse_target(text: str) -> Target:
    """Parses `CHIP:SHAPE`, such as v5e:4x4, v5p:2x2x2, h100:8 or h200:2x8.

    Raises:
      ValueError: the chip is unknown, or the shape is malformed.
    """
    name, _, shape = text.partition(":")
    if name not in CHIPS:
        names = ", ".join(CHIPS)
        raise ValueError(f"--target={text}: unknown chip; use one of {names}")
    chip = CHIPS[name]
    is_gpu = chip.platform == "cuda"
    sizes = tuple(map(int, re.findall(r"\d+", shape)))
    if is_gpu and len(sizes) == 1:
        sizes = (1, *sizes)
    well_formed = re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4})*", shape)
    if not well_formed or len(sizes) != chip.dimensions:
        example = "2x8" if is_gpu else "x".join("2" * chip.dimensions)
        raise ValueError(f"--target={text}: give a shape, as in {name}:{example}")
    return Target(name=name, shape=sizes)


def devices(target: Target) -> Sequence[jax.Device]:
    """Returns JAX devices to compile for; they need no hardware.

    Raises:
      ValueError: the compiler does not support the target, or cannot be loaded.
    """
    name, options = str(target), {}
    if target.chip.platform == "cuda":
        name, shape = target.name, "x".join(map(str, target.shape))
        options = {"target_config": target.description, "topology": f"1x{shape}"}
    try:
        topology = topologies.get_topology_desc(name, target.chip.platform, **options)
    except Exception as error:  # the plugins' own types
        raise ValueError(
            f"--target={target}: its compiler cannot describe it"
            f" ({one_line(error)[:300]}); give another target, or repeat `make plan`"
        ) from None
    return topology.devices
