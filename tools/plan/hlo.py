"""Counts collectives, kernels and memory traffic in the text of a compiled program.

Traffic in a loop counts once per iteration; kernel calls in a loop count once. An
instruction is assumed to read its operands from main memory and to write its results
there. The main exceptions are:

* A slice or gather reads only the elements that it returns.
* An update of some elements is in place: it writes only these elements.
* An intermediate result of at most a quarter of the cache stays in the cache.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^}]*)\})?")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
# Layouts in types contain parentheses without a space before, such as T(8,128).
_LINE = re.compile(r"\s+(ROOT )?%?(\S+) = (.*?) ([a-z][\w\-]*)\((.*?)\)(, .*|)$")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|called_computations|branch_computations"
    r"|true_computation|false_computation)=(?:%?([\w.\-]+)|\{([^}]*)\})"
)
_COLLECTIVES = {
    "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute",
    "ragged-all-to-all",
}  # fmt: skip
# Handwritten kernels: Mosaic on TPUs, Triton and Mosaic on GPUs.
_KERNELS = ("tpu_custom_call", "__gpu$xla.gpu.triton", "mosaic_gpu")
# Instructions without memory traffic of their own.
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call",
    "conditional", "after-all", "partition-id", "replica-id", "iota", "opt-barrier",
    "add-dependency", "async",
}  # fmt: skip
_CALLS = {"while", "conditional", "fusion", "call", "async"}
_SLICES = {"slice", "dynamic-slice", "gather"}
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}  # the operand that is written
_VIEWS = {"bitcast", "get-tuple-element"}
_COPIES = {"bitcast", "copy", "reshape"}


class Array(NamedTuple):
    elements: int
    bytes: int
    space: int  # 0 is main memory, 1 is a TPU's VMEM, 5 is host memory


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """Represents one instruction, printed as `name = arrays op(inside), rest`."""

    name: str
    arrays: Sequence[Array]  # the results
    op: str
    operands: Sequence["Instruction"]
    rest: str  # the attributes
    root: bool  # whether the computation returns the results
    inside: str  # names of operands, or the value of a constant

    @property
    def base(self) -> str:
        """The operation without the "-start" of an asynchronous instruction."""
        return self.op.removesuffix("-start")

    @property
    def is_kernel(self) -> bool:
        return self.op == "custom-call" and any(k in self.rest for k in _KERNELS)

    @property
    def elements(self) -> int:
        return max(1, sum(array.elements for array in self.arrays))

    @property
    def called(self) -> list[str]:
        names = [found[1] or found[2] for found in _CALLED.finditer(self.rest)]
        return [n.strip().lstrip("%") for listed in names for n in listed.split(",")]

    def attribute(self, name: str) -> str:
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.rest)
        return found[1] if found else ""

    def source(self, skipped: set[str]) -> "Instruction":
        """Returns the instruction whose value this is, behind operations `skipped`."""
        return self.operands[0].source(skipped) if self.op in skipped else self


Block = Mapping[str, Instruction]
# The share of each operand that is read and of each result that is written.
Shares = tuple[Sequence[float], Sequence[float]]


class Collective(NamedTuple):
    kind: str  # the operation, such as "all-gather"
    bytes: int  # of a device's results for an all-gather, otherwise of its operands
    times: float  # number of executions in one run of the program
    devices: int  # number of devices in the group
    reach: int  # number of devices from the first to the last of the group, inclusive

    @property
    def sent(self) -> float:
        """The bytes that each device sends in a run of the program (ring algorithm)."""
        share = (self.devices - 1) / self.devices
        if self.kind == "collective-permute":
            share = 1
        return (1 + (self.kind == "all-reduce")) * share * self.bytes * self.times


class Reading(NamedTuple):
    collectives: Sequence[Collective]
    kernel_calls: int  # handwritten kernels
    hbm_bytes: float  # traffic of the main memory


def read(
    text: str, *, trips: Sequence[float], kernel_share: float = 1.0, cache: int = 0
) -> Reading:
    """Counts collectives, handwritten kernels and memory traffic of a program.

    Args:
      text: the text of `jax.stages.Compiled.as_text`, or an empty text.
      trips: assumed trip counts of loops whose length depends on data. Entry d is for
        loops within d other such loops; the last entry is also for deeper loops.
      kernel_share: share of operands and results that handwritten kernels access.
      cache: size of the device's cache in bytes.

    Raises:
      ValueError: a line of the text cannot be parsed.
    """
    module = _Module(text, trips, kernel_share, cache)
    return module.read(module.entry, 1.0)


class _Module:
    def __init__(self, text: str, trips: Sequence[float], share: float, cache: int):
        self._trips, self._kernel_share, self._cache = trips, share, cache
        self.entry = name = ""
        self._blocks: dict[str, dict[str, Instruction]] = {"": {}}
        # A kernel's attributes may run over several lines.
        for line in re.sub(r"\n(?=[^ \n%}A-Z]|\}[^\n ])", " ", text).splitlines():
            if found := _HEAD.match(line):
                name = found[2]
                self._blocks[name] = {}
                self.entry = name if found[1] else self.entry
            elif line.startswith("  ") and " = " in line:
                instruction = _parse(line, self._blocks[name])
                self._blocks[name][instruction.name] = instruction
        self._fusion = functools.cache(self._read_fusion)
        roots = [i for block in self._blocks.values() for i in block.values() if i.root]
        # Values that are returned, or that a returned tuple contains.
        self._leaving = {i.source(_VIEWS) for r in roots for i in (r, *r.operands)}

    def read(
        self, name: str, times: float, fused: bool = False, depth: int = 0
    ) -> Reading:
        """Counts `times` executions of a computation and of all computations it calls.

        `fused` is whether a fusion calls the computation; its memory traffic is then
        counted for the fusion, not here. `depth` is the number of loops of unknown
        length around the computation.
        """
        block = self._blocks[name]
        collectives, kernels, moved = [], 0, 0.0
        for i in block.values():
            if i.base in _COLLECTIVES and not _continues(block):
                collectives.append(_collective(i, times))
            kernels += i.is_kernel
            moved += 0.0 if fused else times * self._moved(i)
            if i.base not in _CALLS:
                continue
            known = self._trip_count(i) if i.op == "while" else 1
            assumed = self._trips[min(depth, len(self._trips) - 1)]
            count = times * (assumed if known is None else known)
            inside = fused or i.base == "fusion"
            for called in i.called:
                reading = self.read(called, count, inside, depth + (known is None))
                collectives += reading.collectives
                kernels += reading.kernel_calls
                moved += reading.hbm_bytes
        return Reading(collectives, kernels, moved)

    def _moved(self, i: Instruction) -> float:
        """Returns the bytes of memory traffic of one execution of an instruction."""
        allocates = i.op == "custom-call" and not i.operands
        if i.base in _FREE or i.op.endswith("-done") or allocates:
            return 0.0
        reads, writes = self._shares(i)
        moved = 0.0
        for share, operand in zip(reads, i.operands, strict=False):
            moved += share * self._in_memory(operand.arrays, operand)
        # An asynchronous start has one more result: its context.
        for share, array in zip(writes, _results(i), strict=False):
            moved += share * self._in_memory([array], i)
        return moved * (self._kernel_share if i.is_kernel else 1.0)

    def _in_memory(self, arrays: Sequence[Array], i: Instruction) -> float:
        """Returns the bytes in main memory of results of `i`; 0 if they are cached."""
        made, found = i.source(_VIEWS), sum(a.bytes for a in arrays if a.space == 0)
        crosses = made.op in ("parameter", "while", "conditional", "call")
        leaves = crosses or made in self._leaving
        return float(found) if leaves or 4 * found > self._cache else 0.0

    def _shares(self, i: Instruction) -> Shares:
        """Returns the share of each operand and result that an instruction accesses."""
        if i.base == "fusion":
            return self._fusion(i.called[0])
        reads, writes = [1.0] * len(i.operands), [1.0] * len(i.arrays)
        if i.base in _SLICES:
            used = sum(array.elements for array in _results(i))
            reads[0] = used / i.operands[0].elements
        elif i.base in _UPDATES:
            update = i.operands[_UPDATES[i.base]].elements
            writes = [update / i.operands[0].elements]
            adds = i.base == "scatter" and (
                _root(self._blocks[i.attribute("to_apply")]).op != "parameter"
            )
            reads[0] = writes[0] * adds  # an addition needs the old values
        return reads, writes

    def _read_fusion(self, name: str) -> Shares:
        block = self._blocks[name].values()
        root = _root(self._blocks[name])
        results = root.operands if root.op == "tuple" else (root,)
        needed = dict.fromkeys(block, 0.0) | dict.fromkeys(results, 1.0)
        read = {}
        for i in reversed(block):
            if i.op == "parameter":
                read[int(i.inside)] = needed[i]
            elif i.op != "tuple":
                for operand, share in zip(i.operands, self._shares(i)[0], strict=False):
                    share = needed[operand] + needed[i] * share
                    needed[operand] = min(1.0, share)
        written = [self._changed(i) or 1.0 for i in results]
        return [read[n] for n in sorted(read)], written

    def _changed(self, i: Instruction) -> float:
        """Returns the share of a value that differs from a parameter of its fusion."""
        made = i.source(_COPIES)
        if made.op not in _UPDATES:
            return float(made.op != "parameter")
        return min(1.0, self._shares(made)[1][0] + self._changed(made.operands[0]))

    def _trip_count(self, loop: Instruction) -> int | None:
        if found := re.search(r'known_trip_count[^}]*?"n":"(\d+)"', loop.rest):
            return int(found[1])
        # The TPU compiler does not print trip counts: derive them from the condition.
        test = _root(self._blocks[loop.attribute("condition")])
        body = _root(self._blocks[loop.attribute("body")])
        if test.op != "compare" or "direction=LT" not in test.rest:
            return None
        first = {n: _integer(i, {}) for n, i in enumerate(loop.operands[0].operands)}
        high = _integer(test.operands[1], first)
        counter = test.operands[0].source(_COPIES)
        if high is None or counter.op != "get-tuple-element":
            return None
        index = int(counter.attribute("index"))
        start = first.get(index) or 0
        after = _integer(body.operands[index], {index: start})
        # The counter of an unrolled loop grows by more than 1.
        return max(0, -(-(high - start) // max(1, (after or 0) - start)))


def _root(block: Block) -> Instruction:
    return next(i for i in block.values() if i.root)


def _results(i: Instruction) -> Sequence[Array]:
    """Returns the results, without the operands that an asynchronous start lists."""
    if i.base == i.op:
        return i.arrays
    if i.base == "copy":
        return i.arrays[:1]
    return i.arrays[sum(len(o.arrays) for o in i.operands) :] or i.arrays


@functools.lru_cache(maxsize=65536)
def _arrays(text: str) -> Sequence[Array]:
    arrays = []
    for dtype, dims, layout in _ARRAY.findall(text):
        space = re.search(r"S\((\d+)\)", layout)
        width = re.fullmatch(r"[a-z]+(\d+)", dtype)  # bf16, s32
        bits = 8 if dtype == "pred" else int(width[1]) if width else 0
        elements = math.prod(_integers(dims))
        where = int(space[1]) if space else 0
        arrays.append(Array(elements, elements * bits // 8, where))
    return arrays


def _parse(line: str, block: Block) -> Instruction:
    found = _LINE.match(line)
    if not found:
        raise ValueError(
            f"cannot parse the compiled program at {line[:80]!r}; extend the patterns"
            " in tools/plan/hlo.py for this version of XLA"
        )
    root, name, kind, op, inside, rest = found.groups()
    names = re.findall(r"%([\w.\-]+)", inside)
    operands = [block[name] for name in names if name in block]
    return Instruction(name, _arrays(kind), op, operands, rest, bool(root), inside)


def _integer(i: Instruction, state: Mapping[int, int | None]) -> int | None:
    """Returns the integer value of `i`, or None if it is unknown.

    `state` has the known integers of the parameter of its block (a tuple), by index.
    """
    i = i.source(_COPIES)
    if i.op == "constant" and re.fullmatch(r"-?\d+", i.inside):
        return int(i.inside)
    if i.op == "get-tuple-element" and i.operands[0].op == "parameter":
        return state.get(int(i.attribute("index")))
    if i.op == "add":
        a, b = (_integer(operand, state) for operand in i.operands)
        return None if a is None or b is None else a + b
    return None


def _continues(block: Block) -> bool:
    """Returns whether a TPU fusion continues a collective that another one starts."""
    rests = [i.rest for i in block.values() if i.op == "custom-call"]
    chained = any("chain_id" in i.rest for i in block.values())
    return chained and not any("AsyncCollectiveStart" in rest for rest in rests)


def _collective(i: Instruction, times: float) -> Collective:
    arrays = [array for operand in i.operands for array in operand.arrays]
    whole = _results(i) if i.base == "all-gather" else arrays
    members = _members(i.rest)
    reach = max(members) - min(members) + 1
    return Collective(i.base, sum(a.bytes for a in whole), times, len(members), reach)


def _members(rest: str) -> list[int]:
    """Returns the devices of a collective's first group; [0] if the text lists none."""
    listed = re.search(r"(?:replica_groups|source_target_pairs)=\{\{([\d,]*)\}", rest)
    if listed:
        return _integers(listed[1])
    # [GROUPS,SIZE]<=[DIMENSIONS]T(PERMUTATION)
    if found := re.search(
        r"replica_groups=\[\d+,(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest
    ):
        order = _integers(found[3] or "") or None
        grid = _grid(_integers(found[2])).transpose(order)
        return grid.ravel()[: int(found[1])].tolist()
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", rest):
        axes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", found[1])}
        first = tuple(slice(None) if f"'{a}'" in found[2] else 0 for a in axes)
        return _grid([*axes.values()])[first].ravel().tolist()
    return [0]


def _integers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]


def _grid(shape: Sequence[int]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)
