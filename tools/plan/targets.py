"""Defines accelerator chips from their data sheets, and targets: sets of chips."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Literal

import jax

from rl.processes.devices import GPU_SHARE
from rl.processes.stopping import one_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """Represents a type of accelerator.

    Attributes:
      platform: name of the compiler.
      flops: dense bfloat16 FLOP/s.
      hbm: memory bandwidth in bytes/s.
      links: bandwidth to the other chips of the node or slice in bytes/s, the sum of
        sending and receiving.
      memory: size of the memory in bytes, as the compiler counts it.
      dimensions: number of dimensions of a target's shape; two for GPUs (nodes and GPUs
        per node).
      cache: size of a GPU's L2 cache in bytes; 0 for a TPU.
      device: a GPU's `GpuTargetConfigProto` for the compiler, as text.
    """

    platform: Literal["tpu", "cuda"]
    flops: float
    hbm: float
    links: float
    memory: int
    dimensions: int
    cache: int = 0
    device: str = ""


def _tpu(dimensions: int, *sheet: float) -> Chip:
    teraflops, hbm, links, gib = sheet
    return Chip(
        platform="tpu",
        flops=teraflops * 1e12,
        hbm=hbm * 1e9,
        links=links * 1e9,
        memory=int(gib * 2**30),
        dimensions=dimensions,
    )


def _gpu(name: str, *sheet: float) -> Chip:
    teraflops, links, cores, memory, hbm, major, l2, ghz, fpus, shared = sheet
    # JAX expects the driver's name of a GPU, such as "NVIDIA H100".
    device = f"""gpu_device_info {{
      threads_per_block_limit: 1024 threads_per_warp: 32
      shared_memory_per_block: 49152 shared_memory_per_core: {shared}
      threads_per_core_limit: 2048 core_count: {cores} fpus_per_core: {fpus}
      block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
      memory_bandwidth: {hbm} l2_cache_size: {l2} clock_rate_ghz: {ghz}
      device_memory_size: {memory} shared_memory_per_block_optin: {shared - 1024}
      cuda_compute_capability {{ major: {major} }}
      registers_per_core_limit: 65536 registers_per_block_limit: 65536 }}
    platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }}
    device_description_str: "NVIDIA {name.upper()}" """
    return Chip(
        platform="cuda",
        flops=teraflops * 1e12,
        hbm=float(hbm),
        links=links * 1e9,
        memory=int(memory),
        dimensions=2,
        cache=int(l2),
        device=device,
    )


# Dimensions, TFLOP/s, HBM and links in GB/s, memory in GiB.
_TPUS = {
    "v5e": (2, 197, 819, 200, 15.75),
    "v5p": (3, 459, 2765, 600, 95.74),
    "v6e": (2, 918, 1640, 448, 31.25),
}
# TFLOP/s, links in GB/s, multiprocessors, memory, HBM in bytes/s, compute capability,
# L2 cache, GHz, FPUs and shared memory of a multiprocessor.
_GPUS = {
    "a100": (
        312, 600, 108, 85100068864, 2039040000000, 8, 41943040, 1.41, 64, 167936,
    ),
    "h100": (
        989, 900, 132, 84942979072, 3352320000000, 9, 52428800, 1.98, 128, 233472,
    ),
    "h200": (
        989, 900, 132, 151397597184, 4800000000000, 9, 52428800, 1.98, 128, 233472,
    ),
    "b200": (
        2250, 1800, 148, 191514411008, 7672320000000, 10, 132644864, 1.965, 128, 233472,
    ),
}  # fmt: skip
CHIPS = {name: _tpu(*sheet) for name, sheet in _TPUS.items()}
CHIPS |= {name: _gpu(name, *sheet) for name, sheet in _GPUS.items()}
# Share of the memory for programs. The rest is for the runtime, buffers of collectives
# and fragmentation.
_USABLE = {"tpu": 0.95, "cuda": GPU_SHARE}
_NETWORK = 50e9  # bytes/s from a GPU to other nodes: one 400 Gb/s adapter per GPU


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """Represents a TPU slice or nodes of GPUs.

    Attributes:
      name: name of the chips, a key of CHIPS.
      shape: shape of the TPU slice, or (nodes, GPUs per node).
    """

    name: str
    shape: tuple[int, ...]

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
        """The memory in bytes of each device that programs may use."""
        return int(self.chip.memory * _USABLE[self.chip.platform])

    def link_rate(self, reach: int) -> float:
        """Returns the bytes/s that a chip can send to its group in a collective.

        Args:
          reach: number of chips from the first to the last of the group, inclusive. If
            it exceeds a node, GPUs use the network.
        """
        within = self.chip.links / 2
        if self.chip.platform == "tpu" or reach <= self.shape[-1]:
            return within
        return min(within, _NETWORK)

    def first(self, count: int) -> "Target":
        """Returns a target of the first `count` GPUs, for the trainer.

        Raises:
          ValueError: the target is a TPU slice, or `count` exceeds a node and is not a
            number of whole nodes.
        """
        if count == self.count:
            return self
        each = self.shape[-1]
        if self.chip.platform != "cuda" or (count > each and count % each):
            raise ValueError(
                f"--target={self}: a trainer cannot have {count} chips of it; use"
                " whole nodes of GPUs, or part of one"
            )
        shape = max(1, count // each), min(count, each)
        return Target(name=self.name, shape=shape)


def parse_target(text: str) -> Target:
    """Parses `CHIP:SHAPE`, such as v5e:4x4, v5p:2x2x2, h100:8 or h200:2x8.

    Raises:
      ValueError: the chip is unknown or cannot have this shape; one line.
    """
    name, _, shape = text.partition(":")
    if name not in CHIPS:
        raise ValueError(
            f"--target={text}: unknown chip; use one of {', '.join(CHIPS)}"
        )
    chip = CHIPS[name]
    if not re.fullmatch(r"[1-9]\d{0,4}(x[1-9]\d{0,4})*", shape):
        example = "2x8" if chip.platform == "cuda" else "x".join("2" * chip.dimensions)
        raise ValueError(f"--target={text}: give a shape, as in {name}:{example}")
    sizes = tuple(map(int, shape.split("x")))
    if chip.platform == "cuda" and len(sizes) == 1:
        sizes = (1, *sizes)
    if len(sizes) != chip.dimensions:
        kind = "NODESxGPUS" if chip.platform == "cuda" else f"{chip.dimensions} sizes"
        raise ValueError(f"--target={text}: the shape of {name} has {kind}")
    return Target(name=name, shape=sizes)


def devices(target: Target) -> Sequence[jax.Device]:
    """Returns JAX devices to compile for; they need no hardware.

    Raises:
      ValueError: the compiler does not support the target.
    """
    from jax.experimental import topologies

    chip = target.chip
    try:
        if chip.platform == "cuda":
            topology = topologies.get_topology_desc(
                target.name,
                "cuda",
                target_config=chip.device,
                topology="1x" + "x".join(map(str, target.shape)),
            )
        else:
            topology = topologies.get_topology_desc(str(target), platform="tpu")
    except Exception as error:  # the plugins' own types
        raise ValueError(f"--target={target}: {one_line(error)[:300]}") from None
    return topology.devices
