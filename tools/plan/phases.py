"""Programs and what stays beside them, added up phase by phase."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from models.config import Qwen2Config
from tools.plan.compiling import Compiled
from tools.plan.hlo import Array, Reading
from tools.plan.programs import PARTS, Resident
from tools.plan.workload import Workload


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """What one device holds while a program runs.

    Attributes:
      name: `sample`, `update` and so on, with the program's name.
      parts: bytes by what they are; they add up to the peak.
      fits: whether the device has so much.
    """

    name: str
    parts: Mapping[str, int]
    fits: bool

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())


# Of each program its phase, what of all that stays it takes or makes, in part or whole,
# and what stays beside it.
_PHASES = {
    "publish_table": ("publish: a table", ("masters", "served"), ("moments",)),
    "publish_layers": ("publish: layers", ("masters", "served"), ("moments",)),
    "prefill": ("sample: prefill", ("served",), ("masters", "moments", "cache")),
    "prefill_begun": (
        "sample: prefill of what is begun",
        ("served",),
        ("masters", "moments", "cache"),
    ),
    "insert": (
        "sample: insert",
        ("cache", "prompts"),
        ("masters", "moments", "served"),
    ),
    "decode": (
        "sample: decode",
        ("served", "cache"),
        ("masters", "moments", "prompts"),
    ),
    # The sampler makes room before the step is scored, and gets its weights anew.
    "score": ("score", ("masters",), ("moments",)),
    "accumulate": ("update: accumulate", ("masters", "gradients"), ("moments",)),
    "apply": ("update: apply", ("masters", "moments", "gradients"), ()),
    "tables": ("export: tables", ("masters",), ("moments", "served")),
    "layer": ("export: layer", ("masters",), ("moments", "served")),
}


def reserved(program: Compiled) -> int:
    """Bytes that a program has for itself: arguments, results and temporary ones.

    Not the compiler's own peak, which leaves out what fragments.
    """
    if program.exceeds:
        return program.exceeds
    return program.arguments + program.outputs - program.aliased + program.temporary


def phases(
    work: Workload, resident: Resident, compiled: Sequence[Compiled]
) -> list[Phase]:
    """Each program's phase, in order, with all that is on the device meanwhile."""
    found = []
    for program in compiled:
        name, own, beside = _PHASES[program.name]
        beside = (*beside, "reference", "published")
        stays = {part: getattr(resident, part) for part in (*own, *beside)}
        # What takes one array of many leaves the others where they are.
        whole = sum(stays[part] for part in own) + program.temporary
        peak = max(reserved(program), whole) + sum(stays[part] for part in beside)
        parts = {part: size for part, size in stays.items() if size}
        parts["activations"] = max(0, peak - sum(parts.values()))
        fits = peak <= work.target.usable and not program.exceeds
        found.append(Phase(name=name, parts=parts, fits=fits))
    return found


def program_rows(
    compiled: Sequence[Compiled], readings: Sequence[Reading], found: Sequence[Phase]
) -> dict[str, dict[str, Any]]:
    """The programs as JSON has them, the functions of one part put together."""
    rows = {}
    every = zip(compiled, readings, found, strict=True)
    for part, of_part in itertools.groupby(every, lambda row: PARTS[row[0].name]):
        programs, texts, during = zip(*of_part, strict=True)
        own = [reserved(program) for program in programs]
        if part == "update":
            # Moments rest beside a micro-batch, and are an argument of the rest.
            own = [phase.bytes for phase in during]
        rows[part] = {
            "peak_bytes": max(own),
            "temp_bytes": max(p.temporary for p in programs),
            "kernel_calls": sum(t.kernel_calls for t in texts),
            "collectives": [
                dataclasses.asdict(c) for t in texts for c in t.collectives
            ],
            "compile_seconds": sum(p.seconds for p in programs),
            "flops": sum(t.flops for t in texts),
            "hbm_bytes": sum(t.hbm_bytes for t in texts),
        }
    return rows


def weight_test(
    model: Qwen2Config,
    mesh_shape: tuple[int, int, int],
    tensor: int,
    *,
    gradients: bool,
) -> Callable[[str, Array, str], bool]:
    """Whether a collective moves a weight, or a weight's gradient.

    By its number of elements: a layer's matrix, whole, as a tensor's part or as a
    shard that goes round a ring, or some thousand words of a table.

    Args:
      model: the architecture.
      mesh_shape: of the trainer.
      tensor: parts of a served copy.
      gradients: whether the program has any; else what is reduced is no weight, though
        some slots' activations may have as many elements as a part of one.
    """
    c, (_, fsdp, of_trainer) = model, mesh_shape
    d, h = c.hidden_size, c.head_dim
    matrices = {
        d * c.num_heads * h,
        d * c.num_kv_heads * h,
        d * c.intermediate_size,
    }
    parts, shards = {1, of_trainer, tensor}, {1, max(1, fsdp // 2), fsdp}
    layer = {m // p // s for m in matrices for p in parts for s in shards}
    layers = {c.num_layers * m for m in layer}
    tables = {c.vocab_size * d // p // s for p in parts for s in (1, fsdp)}
    weights = layer | layers | tables

    def is_weight(kind: str, array: Array, place: str) -> bool:
        if kind == "all-to-all" or len(array.dims) < 2:
            return False
        if kind in ("all-reduce", "reduce-scatter") and not gradients:
            return False
        if array.elements in weights:
            return True
        # The head takes its words block by block; tokens are summed in bfloat16.
        words = array.dims[-1] in (d, d // fsdp) and array.dims[-2] <= 4096
        head = "shard_map/while" in place or (not place and array.dtype == "f32")
        return words and head and not (kind == "all-reduce" and array.dtype == "bf16")

    return is_weight
