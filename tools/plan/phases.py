"""Programs and what stays beside them, added up phase by phase."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from models.config import Qwen2Config
from tools.plan.compiling import Compiled
from tools.plan.hlo import Array, Reading
from tools.plan.programs import Resident
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


# What is a program's own argument, of what stays; the rest of it stays beside.
_OWN = {
    "publish": ("masters", "served"),
    "prefill": ("served",),
    "insert": ("cache",),
    "decode": ("served", "cache"),
    "score": ("masters",),
    "accumulate": ("masters", "gradients"),
    "apply": ("masters", "moments", "gradients"),
    "tables": ("masters",),
    "layer": ("masters",),
}
_STAY = {
    "publish": ("masters", "moments", "served"),
    "prefill": ("masters", "moments", "served", "cache"),
    "insert": ("masters", "moments", "served", "cache"),
    "decode": ("masters", "moments", "served", "cache"),
    # The sampler makes room before the step is scored, and gets its weights anew.
    "score": ("masters", "moments"),
    "accumulate": ("masters", "moments", "gradients"),
    "apply": ("masters", "moments", "gradients"),
    "tables": ("masters", "moments", "served"),
    "layer": ("masters", "moments", "served"),
}
_PHASES = {
    "publish": "publish",
    "prefill": "sample: prefill",
    "insert": "sample: insert",
    "decode": "sample: decode",
    "score": "score",
    "accumulate": "update: accumulate",
    "apply": "update: apply",
    "tables": "export: tables",
    "layer": "export: layer",
}


def reserved(program: Compiled) -> int:
    """Bytes that a program has for itself: arguments, results and temporary ones.

    Not the compiler's `peak`, which leaves out what fragments.
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
        name = program.part or program.name
        stays = (*_STAY[name], "reference")
        has = {part: getattr(resident, part) for part in stays}
        beside = sum(has[part] for part in stays if part not in _OWN[name])
        parts = {part: size for part, size in has.items() if size}
        peak = beside + reserved(program)
        parts["activations"] = max(0, peak - sum(parts.values()))
        fits = peak <= work.target.usable and not program.exceeds
        found.append(Phase(name=_PHASES[name], parts=parts, fits=fits))
    return found


def program_rows(
    resident: Resident,
    compiled: Sequence[Compiled],
    readings: Sequence[Reading],
    found: Sequence[Phase],
) -> dict[str, dict]:
    """The programs as JSON has them, the parts of one name put together."""
    rows: dict[str, dict] = {}
    for program, reading, phase in zip(compiled, readings, found, strict=True):
        row = rows.setdefault(
            program.name,
            {
                "peak_bytes": 0,
                "temp_bytes": 0,
                "kernel_calls": 0,
                "collectives": [],
                "compile_seconds": 0.0,
                "flops": 0.0,
                "hbm_bytes": 0.0,
            },
        )
        own = reserved(program)
        if program.name == "update":
            # Moments rest beside a micro-batch, and are an argument of the rest.
            own = phase.bytes
        row["peak_bytes"] = max(row["peak_bytes"], own)
        row["temp_bytes"] = max(row["temp_bytes"], program.temporary)
        row["kernel_calls"] += reading.kernel_calls
        row["collectives"] += [
            {
                "kind": c.kind,
                "bytes": c.bytes,
                "in_loop": c.in_loop,
                "of_weight": c.of_weight,
                "times": c.times,
                "devices": c.group,
            }
            for c in reading.collectives
        ]
        row["compile_seconds"] += program.seconds
        row["flops"] += reading.flops
        row["hbm_bytes"] += reading.hbm_bytes
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
    parts = {1, of_trainer, tensor}
    layer = {m // p for m in matrices for p in parts}
    layer |= {m // p // f for m in matrices for p in parts for f in (fsdp, fsdp // 2)
              if f > 1}  # fmt: skip
    layer |= {c.num_layers * m for m in set(layer)}
    tables = {c.vocab_size * d // p for p in parts}
    tables |= {t // fsdp for t in tables}

    def is_weight(kind: str, array: Array, place: str) -> bool:
        if kind == "all-to-all" or len(array.dims) < 2:
            return False
        if kind in ("all-reduce", "reduce-scatter") and not gradients:
            return False
        if array.elements in layer | tables:
            return True
        # The head takes its words block by block; tokens are summed in bfloat16.
        words = array.dims[-1] in (d, d // fsdp) and array.dims[-2] <= 4096
        head = "shard_map/while" in place or (not place and array.dtype == "f32")
        return words and head and not (kind == "all-reduce" and array.dtype == "bf16")

    return is_weight
