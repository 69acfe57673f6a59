"""What a compiled program's text says: collectives, kernels, operations, bytes.

XLA prints one computation after the other, each an instruction per line; loops and
fusions name the computations that they call. Everything is counted from the entry on,
times the trips of the loops around it.
"""

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

_BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32,
    "u32": 32, "s64": 64, "u64": 64, "bf16": 16, "f16": 16, "f32": 32, "f64": 64,
    "f8e4m3fn": 8, "f8e5m2": 8, "c64": 64, "c128": 128,
}  # fmt: skip
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([^}]*)\})?")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|called_computations|branch_computations)="
    r"(?:%?([\w.\-]+)|\{([^}]*)\})"
)
COLLECTIVES = (
    "all-gather",
    "reduce-scatter",
    "all-reduce",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
)
# Kernels that were written by hand: Mosaic's on TPUs, Triton's and Mosaic's on GPUs.
_KERNELS = ("tpu_custom_call", "__gpu$xla.gpu.triton", "mosaic_gpu")
_GEMM = ("__cublas$gemm", "__cublas$lt$matmul")
# Neither read nor write memory of their own.
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call",
    "conditional", "after-all", "partition-id", "replica-id", "iota", "opt-barrier",
    "add-dependency",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """One array of a type.

    Attributes:
      dtype, dims: as XLA names them.
      space: of memory; 0 is the device's own, 1 a TPU's fast memory, 5 the host's.
    """

    dtype: str
    dims: tuple[int, ...]
    space: int

    @property
    def elements(self) -> int:
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        return self.elements * _BITS.get(self.dtype, 0) // 8


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One line: `name = type op(operands), rest`."""

    name: str
    arrays: tuple[Array, ...]
    op: str
    operands: tuple[str, ...]
    rest: str
    root: bool
    inside: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Data that travels between devices.

    Attributes:
      kind: of `COLLECTIVES`.
      bytes: of the whole array, gathered or before it is reduced, in one go.
      times: that it happens in one run of the program.
      in_loop: whether a loop has it in its body.
      of_weight: whether it is a weight or its gradient.
      devices: that take part together.
      reach: how far apart by number its first and last device are, both counted.
    """

    kind: str
    bytes: int
    times: float
    in_loop: bool
    of_weight: bool
    devices: int
    reach: int

    @property
    def sent(self) -> float:
        """Bytes that each device sends, all times together, in a ring."""
        share = (self.devices - 1) / self.devices
        if self.kind == "collective-permute":
            share = 1
        twice = 2 if self.kind == "all-reduce" else 1
        return twice * share * self.bytes * self.times


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """Of one program, per device.

    Attributes:
      collectives: in the order of the text.
      kernel_calls: kernels in the text.
      flops: of its matrix products; what is inside of kernels is not seen.
      hbm_bytes: read from and written to memory.
    """

    collectives: tuple[Collective, ...]
    kernel_calls: int
    flops: float
    hbm_bytes: float


def read(
    text: str,
    *,
    is_weight: Callable[[str, Array, str], bool],
    trips: Sequence[float],
    kernel_share: float = 1.0,
) -> Reading:
    """Reads a compiled program.

    Args:
      text: of `jax.stages.Compiled.as_text`; empty where the compiler refused it.
      is_weight: of a collective's kind, largest array and place in the source, whether
        it moves a weight or its gradient.
      trips: of loops whose length is data: of one in no other such loop, of one in one
        other, and so on; the last is that of all deeper ones.
      kernel_share: of what kernels are given, the part that they read.
    """
    module = _Module(text)
    collectives, kernels, flops, hbm = [], 0, 0.0, 0.0
    for instructions, times, in_loop, fused in module.visits(trips):
        later = _goes_on(instructions)
        for i in instructions.values():
            kind = i.op.removesuffix("-start")
            if kind in COLLECTIVES and not later:
                collectives.append(
                    _collective(i, kind, instructions, times, in_loop, is_weight)
                )
            kernel = i.op == "custom-call" and any(k in i.rest for k in _KERNELS)
            kernels += kernel
            flops += times * _flops(i, instructions)
            if not fused:
                share = kernel_share if kernel else 1.0
                hbm += times * share * module.bytes(i, instructions)
    return Reading(
        collectives=tuple(collectives), kernel_calls=kernels, flops=flops, hbm_bytes=hbm
    )


class _Module:
    """A text's computations, and the name of the one that it begins with."""

    def __init__(self, text: str):
        self.entry = ""  # of an empty text, which has nothing
        self.computations: dict[str, dict[str, Instruction]] = {"": {}}
        self._users: dict[str, Mapping[str, list[Instruction]]] = {}
        current = None
        # A kernel's attributes may run over several lines.
        for line in re.sub(r"\n(?=[^ \n%}A-Z]|\}[^\n ])", " ", text).splitlines():
            if current is None:
                if found := _HEAD.match(line):
                    current = found[2]
                    self.computations[current] = {}
                    if found[1]:
                        self.entry = current
            elif line.startswith("}"):
                current = None
            elif " = " in line:
                instruction = _parse(line)
                self.computations[current][instruction.name] = instruction

    def visits(
        self, trips: Sequence[float]
    ) -> Iterator[tuple[Mapping[str, Instruction], float, bool, bool]]:
        """Each computation as often as it is called: times, in a loop, in a fusion."""
        ahead = [(self.entry, 1.0, False, False, 0)]
        while ahead:
            name, times, in_loop, fused, depth = ahead.pop()
            instructions = self.computations[name]
            yield instructions, times, in_loop, fused
            for i in instructions.values():
                called = _called(i)
                if i.op == "while":
                    known = self._trips(i, instructions)
                    deeper = depth + (known is None)
                    count = trips[min(depth, len(trips) - 1)]
                    inside = times * (count if known is None else known)
                    ahead += [(c, inside, True, False, deeper) for c in called]
                elif i.op == "fusion" or i.op.endswith("-start"):
                    ahead += [(c, times, in_loop, True, depth) for c in called]
                elif i.op in ("call", "conditional"):
                    ahead += [(c, times, in_loop, fused, depth) for c in called]

    def _trips(self, loop: Instruction, others: Mapping[str, Instruction]):
        """Of a loop; None where its length is data."""
        if found := re.search(r'known_trip_count[^}]*?"n":"(\d+)"', loop.rest):
            return int(found[1])
        # A TPU's compiler does not say so: a counter meets a constant.
        condition = self.computations[_attribute(loop, "condition")]
        (root,) = (i for i in condition.values() if i.root)
        state = others[loop.operands[0]]
        if root.op != "compare" or "direction=LT" not in root.rest:
            return None
        counter, bound = (_source(name, condition) for name in root.operands)
        low, high = self._initial(counter, state, others), _constant(bound)
        if high is None:
            high = self._initial(bound, state, others)
        if high is None or counter.op != "get-tuple-element":
            return None
        body = self.computations[_attribute(loop, "body")]
        return max(0, -(-(high - (low or 0)) // _step(body, _index(counter))))

    def _initial(self, element, state, others) -> int | None:
        """What a loop's state begins with at a place, where that is a constant."""
        if element.op != "get-tuple-element" or not state.operands:
            return None
        return _constant(_source(state.operands[_index(element)], others))

    def bytes(self, i: Instruction, others: Mapping[str, Instruction]) -> float:
        """What an instruction reads from memory and writes to it."""
        if i.op in _FREE or i.op.endswith("-done"):
            return 0.0
        operands = [others[name] for name in i.operands if name in others]
        read = [_in_memory(o.arrays) for o in operands]
        written = _in_memory(i.arrays)
        if i.op.endswith("-start"):
            written = max(0.0, written - sum(read))
        if i.op in ("dynamic-slice", "gather"):
            read = [written]
        elif i.op == "dynamic-update-slice":
            read, written = [0, read[1]], read[1]
        elif i.op == "fusion":
            return self._fusion_bytes(i, read, written)
        return sum(read) + written

    def _fusion_bytes(self, i: Instruction, read: list[float], written: float) -> float:
        """Of a slice what it takes, of an update what it puts; else all."""
        (called,) = _called(i)
        total = 0.0
        for index, size in enumerate(read):
            taken, put = self._uses(called, index)
            if put is not None:
                # Written in place: the rest of the array is not touched.
                written = max(put, written - size)
            total += size if taken is None else min(size, taken)
        return total + written

    def _uses(self, computation: str, index: int) -> tuple[float | None, float | None]:
        """Bytes that slices take of a parameter, None: it is read whole; and bytes
        that are put into it in place, None: it is not updated.
        """
        inside, users = self._inside(computation)
        taken, put = 0.0, None
        ahead = [
            p.name
            for p in inside.values()
            if p.op == "parameter" and int(p.inside) == index
        ]
        while ahead:
            name = ahead.pop()
            for user in users[name]:
                if user.op in ("bitcast", "reshape", "copy"):
                    ahead.append(user.name)
                elif user.op == "dynamic-slice" and user.operands[0] == name:
                    taken += user.arrays[0].bytes
                elif user.op == "dynamic-update-slice" and user.operands[0] == name:
                    put = (put or 0.0) + inside[user.operands[1]].arrays[0].bytes
                elif user.op == "fusion":
                    (called,) = _called(user)
                    of_inner = self._uses(called, user.operands.index(name))
                    if of_inner[0] is None:
                        return None, None
                    taken += of_inner[0]
                    put = put if of_inner[1] is None else (put or 0.0) + of_inner[1]
                else:
                    return None, None
        return taken, put

    def _inside(self, computation: str):
        """A computation's instructions, and who uses each."""
        if computation not in self._users:
            users = collections.defaultdict(list)
            for other in self.computations[computation].values():
                for name in dict.fromkeys(other.operands):
                    users[name].append(other)
            self._users[computation] = users
        return self.computations[computation], self._users[computation]


@functools.lru_cache(maxsize=65536)
def _arrays(text: str) -> tuple[Array, ...]:
    arrays = []
    for dtype, dims, layout in _ARRAY.findall(text):
        space = re.search(r"S\((\d+)\)", layout or "")
        arrays.append(
            Array(
                dtype,
                tuple(int(d) for d in dims.split(",") if d),
                int(space[1]) if space else 0,
            )
        )
    return tuple(arrays)


def _parse(line: str) -> Instruction:
    name, _, rest = line.strip().partition(" = ")
    root = name.startswith("ROOT ")
    name = name.removeprefix("ROOT ").lstrip("%")
    if rest.startswith("("):
        end = _closing(rest, 0) + 1
    else:
        end = rest.index(" ")
    kind, rest = rest[:end], rest[end:].lstrip()
    op, _, _ = rest.partition("(")
    end = _closing(rest, len(op))
    inside = rest[len(op) + 1 : end]
    operands = tuple(re.findall(r"%([\w.\-]+)", inside))
    return Instruction(name, _arrays(kind), op, operands, rest[end + 1 :], root, inside)


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that opens at `start` closes."""
    depth = 0
    for found in re.finditer(r"[()]", text[start:]):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return start + found.start()
    raise ValueError(f"a compiled program's line without an end: {text[:80]}")


def _called(i: Instruction) -> list[str]:
    names = []
    for found in _CALLED.finditer(i.rest):
        listed = found[1] or found[2]
        names += [name.strip().lstrip("%") for name in listed.split(",")]
    return names


def _flops(i: Instruction, others: Mapping[str, Instruction]) -> float:
    """Of a matrix product."""

    def dims(index):
        return others[i.operands[index]].arrays[0].dims

    if i.op == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", i.rest)[1]
    elif i.op == "custom-call" and any(f'"{g}' in i.rest for g in _GEMM):
        found = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', i.rest)
        contracted = found[1].replace('"', "")
    elif i.op == "convolution":
        return _convolution_flops(i, dims(0), dims(1))
    else:
        return 0.0
    inner = math.prod(dims(0)[int(d)] for d in contracted.split(",") if d)
    return 2.0 * i.arrays[0].elements * inner


def _convolution_flops(i: Instruction, lhs, kernel) -> float:
    """Of what a TPU makes of matrix products: spatial axes are batches or blocks."""
    left, right, out = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", i.rest).groups()
    window = re.search(r"window=\{([^}]*)\}", i.rest)
    given = dict(re.findall(r"(\w+)=([\dx_\-]+)", window[1] if window else ""))

    def of(name, axis, default):
        # Padding has two numbers for an axis, of which the first stands before it.
        axes = given[name].split("x") if name in given else {axis: default}
        return int(axes[axis].partition("_")[0])

    products = 1
    for axis in filter(str.isdigit, out):
        n = int(axis)
        stride, dilation = of("stride", n, "1"), of("rhs_dilate", n, "1")
        spread, padding = of("lhs_dilate", n, "1"), of("pad", n, "0")
        size = (lhs[left.index(axis)] - 1) * spread + 1
        places = [
            o * stride + k * dilation - padding
            for o in range(i.arrays[0].dims[out.index(axis)])
            for k in range(kernel[right.index(axis)])
        ]
        products *= sum(0 <= at < size and at % spread == 0 for at in places)
    results = i.arrays[0].dims
    of_rest = results[out.index("b")] * results[out.index("f")]
    return 2.0 * of_rest * kernel[right.index("i")] * products


def _source(name: str, among: Mapping[str, Instruction]) -> Instruction:
    """Who makes a value, looking through what only renames it."""
    found = among[name]
    while found.op in ("copy", "bitcast"):
        found = among[found.operands[0]]
    return found


def _constant(i: Instruction) -> int | None:
    if i.op == "constant" and re.fullmatch(r"-?\d+", i.inside):
        return int(i.inside)
    return None


def _attribute(i: Instruction, name: str) -> str:
    return re.search(rf"\b{name}=%?([\w.\-]+)", i.rest)[1]


def _index(i: Instruction) -> int:
    return int(_attribute(i, "index"))


def _step(body: Mapping[str, Instruction], counter: int) -> int:
    """By how much a loop's counter goes on: a TPU's loops may be unrolled."""
    (root,) = (i for i in body.values() if i.root)
    if root.op != "tuple":
        return 1
    total = 0
    made = _source(root.operands[counter], body)
    while made.op == "add":
        parts = [_source(name, body) for name in made.operands]
        steps = [n for n in map(_constant, parts) if n is not None]
        if not steps:
            return 1
        total += steps[0]
        made = next(part for part in parts if _constant(part) is None)
    return total or 1


def _goes_on(instructions: Mapping[str, Instruction]) -> bool:
    """Whether a TPU's fusion goes on with, or ends, what another one began.

    A collective that runs behind several fusions stands in each of them.
    """
    targets = [i.rest for i in instructions.values() if i.op == "custom-call"]
    chained = any("chain_id" in i.rest for i in instructions.values())
    return chained and not any("AsyncCollectiveStart" in rest for rest in targets)


def _collective(i, kind, others, times, in_loop, is_weight) -> Collective:
    operands = [a for name in i.operands for a in others[name].arrays]
    results = list(i.arrays)
    if i.op.endswith("-start"):
        # The operands stand in the result's type as well.
        results = results[len(operands) :] or results
    whole = results if kind == "all-gather" else operands
    devices, reach = _group(i.rest)
    place = re.search(r'op_name="([^"]*)"', i.rest)
    largest = max(whole, key=lambda array: array.bytes)
    return Collective(
        kind=kind,
        bytes=sum(array.bytes for array in whole),
        times=times,
        in_loop=in_loop,
        of_weight=is_weight(kind, largest, place[1] if place else ""),
        devices=devices,
        reach=reach,
    )


def _in_memory(arrays) -> float:
    return float(sum(a.bytes for a in arrays if a.space == 0))


def _group(rest: str) -> tuple[int, int]:
    """Devices of a group, and how far apart by number its first and last are."""
    if found := re.search(r"replica_groups=\{\{([\d,]*)\}", rest):
        members = [int(n) for n in found[1].split(",") if n]
        return len(members), max(members) - min(members) + 1
    if found := re.search(
        r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest
    ):
        groups, size = int(found[1]), int(found[2])
        # Without a transposition the members of a group follow each other.
        return size, size if not found[4] else groups * size
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", rest):
        sizes = {k: int(n) for k, n in re.findall(r"'(\w+)'=(\d+)", found[1])}
        taken, size, reach, stride = re.findall(r"'(\w+)'", found[2]), 1, 1, 1
        for axis, count in reversed(sizes.items()):
            if axis in taken:
                size, reach = size * count, reach + (count - 1) * stride
            stride *= count
        return size, reach
    if found := re.search(r"source_target_pairs=\{\{(\d+),(\d+)\}", rest):
        return 2, abs(int(found[2]) - int(found[1])) + 1
    return 1, 1
