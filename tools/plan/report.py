"""Reports memory and cost of a run's programs, and whether they fit into memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from sharding.mesh import SIZES
from tools.plan import hlo
from tools.plan.compiling import Compiled
from tools.plan.programs import PHASES, Resident
from tools.plan.workload import Workload


def make_report(
    work: Workload, resident: Resident, compiled: Sequence[Compiled], *, context: int
) -> dict[str, Any]:
    """Returns the plan that `--json` writes: memory and cost of the compiled programs.

    `context` is the number of cached positions that a decoded token attends to. It is
    cut to `max_prompt_tokens + max_response_tokens`; 0 means half of this sum.
    """
    r, layout = work.config.rollout, resident.layout
    slot = r.max_prompt_tokens + r.max_response_tokens
    context = min(context or slot // 2, slot)
    programs = {p.name: _program(work, resident, p, context / slot) for p in compiled}
    return {
        "target": str(work.target),
        "model": work.config.model.path or work.config.model.maker,
        "trainer": {"devices": work.target.count}
        | dict(zip(SIZES, work.mesh_shape, strict=True)),
        "micro_batch": {"rows": work.rows, "row_length": work.row_length},
        "remat": work.config.model.remat,
        "offload_optimizer": work.config.mesh.offload_optimizer,
        "sampler": {
            "devices_per_copy": layout.tensor if layout else 1,
            "copies": layout.copies if layout else 0,
            "slots": layout.slot_counts()[-1] if layout else 0,
            "context": context,
        },
        "memory": {
            "device_bytes": work.target.chip.memory,
            "usable_bytes": work.target.usable,
        },
        "programs": programs,
        "fits": all(row["fits"] for row in programs.values()),
    }


def memory(sizes: Mapping[str, int], program: Compiled) -> dict[str, int]:
    """Returns the bytes on one device while a program runs, by array.

    "temporary" is the memory that the program allocates for itself. `sizes` is
    `Resident.sizes`.
    """
    used, others = (names.split() for names in PHASES[program.name])
    present = {*used, *others, "base", "reference"}
    parts = {name: size for name, size in sizes.items() if size and name in present}
    # A program may take a part of a resident array; the rest stays in memory as well.
    whole = sum(parts.get(name, 0) for name in used) + program.temporary
    rest = sum(size for name, size in parts.items() if name not in used)
    # The compiler's peak is lower, because it does not include fragmentation.
    reserved = program.arguments + program.outputs - program.aliased + program.temporary
    peak = max(program.exceeds, reserved, whole) + rest
    return parts | {"temporary": max(0, peak - sum(parts.values()))}


def fits(work: Workload, parts: Mapping[str, int], program: Compiled) -> bool:
    return sum(parts.values()) <= work.target.usable and not program.exceeds


def _program(
    work: Workload, resident: Resident, program: Compiled, filled: float
) -> dict[str, Any]:
    r, layout = work.config.rollout, resident.layout
    # Upper bounds: the head scores all tokens, and each row is one text.
    trips: tuple[float, ...] = (-(-work.local_tokens // work.config.model.head_chunk),)
    share, length = 1.0, float(work.row_length)
    if program.name == "decode" and layout:
        # One run decodes a few tokens. A kernel or loop reads filled columns only.
        length = filled * (r.max_prompt_tokens + r.max_response_tokens)
        columns = layout.settings.columns or layout.lengths(1, 1, layout.prefix)[0]
        trips, share = (1, -(-length // columns)), filled
    chip = work.target.chip
    reading = hlo.read(program.text, trips=trips, kernel_share=share, cache=chip.cache)
    flops = work.flops(program.name, resident.tokens.get(program.name, 0.0), length)
    links = (c.sent / work.target.link_rate(c.reach) for c in reading.collectives)
    seconds = {
        "compute": flops / chip.flops,
        "memory": reading.hbm_bytes / chip.hbm,
        "links": sum(links),
    }
    parts = memory(resident.sizes, program)
    return {
        "parts": parts,
        "peak_bytes": sum(parts.values()),
        "fits": fits(work, parts, program),
        "temporary_bytes": program.temporary,
        "kernel_calls": reading.kernel_calls,
        "flops": flops,
        "hbm_bytes": reading.hbm_bytes,
        "collectives": [c._asdict() | {"sent": c.sent} for c in reading.collectives],
        "seconds": seconds,
        "bound_by": max(seconds, key=seconds.__getitem__),
        "compile_seconds": program.seconds,
    }


def gib(size: float) -> str:
    return f"{size / 2**30:,.2f}"


def describe(plan: Mapping[str, Any]) -> str:
    trainer, sampler, programs = plan["trainer"], plan["sampler"], plan["programs"]
    usable = gib(plan["memory"]["usable_bytes"])
    lines = [
        f"{plan['model']} on {plan['target']}: trainer on {trainer['devices']},"
        f" data {trainer['data']} x fsdp {trainer['fsdp']} x tensor"
        f" {trainer['tensor']}, micro-batch {plan['micro_batch']['rows']} x"
        f" {plan['micro_batch']['row_length']}, remat {plan['remat']}"
        + (", moments on the host" if plan["offload_optimizer"] else "")
    ]
    if sampler["copies"]:
        lines.append(
            f"Sampler: {sampler['copies']} x {sampler['devices_per_copy']} devices,"
            f" {sampler['slots']} slots; decode at {sampler['context']} positions"
        )
    # A resident array has the same size in all programs.
    parts = {k: v for row in programs.values() for k, v in row["parts"].items()}
    lines.append(
        f"Memory of each device: {usable} GiB usable of"
        f" {gib(plan['memory']['device_bytes'])}; during a program, "
        + ", ".join(f"{k} {gib(v)}" for k, v in parts.items() if k != "temporary")
    )
    rows = [_row(name, row) for name, row in programs.items()]
    table = [[*rows[0]], *([*row.values()] for row in rows)]
    first, *others = (max(map(len, column)) for column in zip(*table, strict=True))
    lines.append("")
    for name, *cells in table:
        lines.append("  ".join([name.ljust(first), *map(str.rjust, cells, others)]))
    name, worst = max(programs.items(), key=lambda row: row[1]["peak_bytes"])
    fault = (
        f"It does not fit: {name} needs {gib(worst['peak_bytes'])} GiB of each device,"
        f" but only {usable} are usable."
    )
    return "\n".join([*lines, "", "It fits." if plan["fits"] else fault])


def _row(name: str, row: Mapping[str, Any]) -> dict[str, str]:
    return {  # for one execution on one device
        "program": name,
        "peak GiB": gib(row["peak_bytes"]) + ("" if row["fits"] else "!"),
        "temporary": gib(row["temporary_bytes"]),
        "kernels": str(row["kernel_calls"]),
        "TFLOP": f"{row['flops'] / 1e12:,.2f}",
        "memory GB": f"{row['hbm_bytes'] / 1e9:,.2f}",
        "collectives": str(len(row["collectives"])),
        "sent GB": f"{sum(c['sent'] for c in row['collectives']) / 1e9:,.2f}",
        "at least ms": f"{1e3 * max(row['seconds'].values()):,.2f}",
        "bound by": row["bound_by"],
        "compiled in s": f"{row['compile_seconds']:,.0f}",
    }
