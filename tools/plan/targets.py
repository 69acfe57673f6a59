"""Chips by their makers' sheets, and targets made of them: `v5e:4x4`, `h100:2x8`."""

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
    """One accelerator.

    Attributes:
      name: as targets name it.
      platform: whose compiler it takes.
      flops: dense bfloat16, per second.
      hbm: bytes per second.
      links: bytes per second to the chips of its host or slice, all directions, so
        that half of it leaves the chip.
      network: bytes per second of its own between hosts, one direction; None where
        links reach everywhere.
      memory: bytes, as the compiler counts them.
      usable: share of `memory` that a program may have; the rest is the runtime's, the
        collectives' buffers and what fragments.
      dimensions: of a slice; of a GPU's, nodes and GPUs of a node.
      device: text of the compiler's `GpuTargetConfigProto`, for a GPU.
    """

    name: str
    platform: Literal["tpu", "cuda"]
    flops: float
    hbm: float
    links: float
    network: float | None
    memory: int
    usable: float
    dimensions: int
    device: str = ""


def _tpu(name, teraflops, hbm, links, gib, dimensions) -> Chip:
    return Chip(
        name=name,
        platform="tpu",
        flops=teraflops * 1e12,
        hbm=hbm * 1e9,
        links=links * 1e9,
        network=None,
        memory=int(gib * 2**30),
        usable=0.95,
        dimensions=dimensions,
    )


def _gpu(
    name, teraflops, links, *, cores, memory, hbm, major, l2, ghz, fpus, shared
) -> Chip:
    # What is not here is alike for all of them.
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
        name=name,
        platform="cuda",
        flops=teraflops * 1e12,
        hbm=float(hbm),
        links=links * 1e9,
        network=50e9,  # a 400 Gb/s adapter for each GPU
        memory=memory,
        usable=GPU_SHARE,
        dimensions=2,
        device=device,
    )


CHIPS = {
    chip.name: chip
    for chip in (
        _tpu("v5e", 197, 819, 200, 15.75, 2),
        _tpu("v5p", 459, 2765, 600, 95.74, 3),
        _tpu("v6e", 918, 1640, 448, 31.25, 2),
        _gpu(
            "a100", 312, 600, cores=108, memory=85100068864, hbm=2039040000000,
            major=8, l2=41943040, ghz=1.41, fpus=64, shared=167936,
        ),
        _gpu(
            "h100", 989, 900, cores=132, memory=84942979072, hbm=3352320000000,
            major=9, l2=52428800, ghz=1.98, fpus=128, shared=233472,
        ),
        _gpu(
            "h200", 989, 900, cores=132, memory=151397597184, hbm=4800000000000,
            major=9, l2=52428800, ghz=1.98, fpus=128, shared=233472,
        ),
        _gpu(
            "b200", 2250, 1800, cores=148, memory=191514411008, hbm=7672320000000,
            major=10, l2=132644864, ghz=1.965, fpus=128, shared=233472,
        ),
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """Chips that are, or could be, one machine.

    Attributes:
      chip: of one kind.
      shape: of the slice; nodes and GPUs of each.
    """

    chip: Chip
    shape: tuple[int, ...]

    def __str__(self) -> str:
        shape = self.shape
        if self.chip.platform == "cuda" and shape[0] == 1:
            shape = shape[1:]
        return f"{self.chip.name}:{'x'.join(map(str, shape))}"

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def usable(self) -> int:
        """Bytes of each device that programs may have."""
        return int(self.chip.memory * self.chip.usable)

    def link_rate(self, reach: int) -> float:
        """Bytes per second that a chip sends to those of a group.

        Args:
          reach: how far apart by number its first and last chip are, both counted;
            beyond a node it goes over the network.
        """
        within = self.chip.links / 2
        if self.chip.network is None or reach <= self.shape[-1]:
            return within
        return min(within, self.chip.network)

    def first(self, count: int) -> "Target":
        """Its first `count` GPUs, where a trainer leaves the others to servers.

        Raises:
          ValueError: a slice of TPUs is not divided so, or whole nodes and a rest.
        """
        if count == self.count:
            return self
        nodes, each = self.shape[0], self.shape[-1]
        if self.chip.platform != "cuda" or (count > each and count % each):
            raise ValueError(f"a trainer on {count} chips of {self}: no such part")
        nodes, each = max(1, count // each), min(count, each)
        return Target(chip=self.chip, shape=(nodes, each))


def parse_target(text: str) -> Target:
    """Reads `CHIP:SHAPE`, such as v5e:4x4, v5p:2x2x2, h100:8, h200:2x8.

    Raises:
      ValueError: one line with what is wrong and what there is.
    """
    name, _, shape = text.partition(":")
    if name not in CHIPS:
        raise ValueError(f"--target={text}: no such chip; there are {', '.join(CHIPS)}")
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
    return Target(chip=chip, shape=sizes)


def devices(target: Target) -> Sequence[jax.Device]:
    """What the compiler compiles for; needs its plugin, and no hardware.

    Raises:
      ValueError: the compiler knows no such slice.
    """
    from jax.experimental import topologies

    chip = target.chip
    try:
        if chip.platform == "cuda":
            topology = topologies.get_topology_desc(
                chip.name,
                "cuda",
                target_config=chip.device,
                topology="1x" + "x".join(map(str, target.shape)),
            )
        else:
            topology = topologies.get_topology_desc(str(target), platform="tpu")
    except Exception as error:  # the plugins' own types
        raise ValueError(f"--target={target}: {one_line(error)[:300]}") from None
    return topology.devices
