"""Puts together what the compilers reported: as JSON, and as text."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from sharding.mesh import SIZES
from tools.plan import hlo
from tools.plan.compiling import Compiled
from tools.plan.programs import Resident
from tools.plan.workload import Workload

_GIB = 2**30
_BAR = 60  # characters of the longest bar
_STATE = ("masters", "moments")
_SAMPLER = ("masters", "moments", "served", "cache")
# By program: what it takes or makes of the arrays that stay, and all that stay.
_PHASES = {
    "prefill": (("served",), _SAMPLER),
    "prefill_begun": (("served",), _SAMPLER),
    "insert": (("cache", "prompts"), (*_SAMPLER, "prompts")),
    "decode": (("served", "cache"), (*_SAMPLER, "prompts")),
    # The sampler frees its memory before the step is scored.
    "score": (("masters", "base"), _STATE),
    "accumulate": (("masters", "base", "gradients"), (*_STATE, "gradients")),
    "apply": (("masters", "moments", "gradients"), (*_STATE, "gradients")),
    "publish_table": (("masters", "base", "served"), (*_STATE, "served")),
    "publish_layers": (("masters", "base", "served"), (*_STATE, "served")),
}
_LETTERS = {
    "masters": "W",
    "base": "B",
    "moments": "O",
    "gradients": "G",
    "reference": "R",
    "served": "S",
    "cache": "C",
    "prompts": "P",
    "temporary": "T",
}


def make_report(
    work: Workload, resident: Resident, compiled: Sequence[Compiled], *, context: int
) -> dict[str, Any]:
    """Returns the plan.

    Args:
      work: the run.
      resident: what stays on each device.
      compiled: the run's programs.
      context: cached positions of a decoded token; 0: half of what a slot holds.
    """
    r = work.config.rollout
    slot = r.max_prompt_tokens + r.max_response_tokens
    context = min(context or slot // 2, slot)
    programs = {
        program.name: _program(work, resident, program, context / slot)
        for program in compiled
    }
    return {
        "target": str(work.target),
        "model": work.config.model.path or work.config.model.maker,
        "trainer": {
            "devices": work.trainer.count,
            **dict(zip(SIZES, work.mesh_shape, strict=True)),
        },
        "micro_batch": {"rows": work.rows, "row_length": work.row_length},
        "remat": work.config.model.remat,
        "offload_optimizer": work.config.mesh.offload_optimizer,
        "sampler": {
            "devices_per_copy": resident.tensor,
            "copies": resident.copies,
            "slots": resident.batch,
            "context": context,
        },
        "memory": {
            "device_bytes": work.target.chip.memory,
            "usable_bytes": work.target.usable,
        },
        "programs": programs,
        "fits": all(program["fits"] for program in programs.values()),
    }


def memory(resident: Resident, program: Compiled) -> dict[str, int]:
    """Returns what one device holds while a program runs, in bytes."""
    own, beside = _PHASES[program.name]
    parts = {name: getattr(resident, name) for name in (*beside, "base", "reference")}
    # A program that takes one array of many leaves the others where they are.
    whole = sum(parts[name] for name in own) + program.temporary
    others = sum(size for name, size in parts.items() if name not in own)
    # The compiler's own peak is lower: it leaves out fragmentation.
    reserved = program.arguments + program.outputs - program.aliased + program.temporary
    peak = max(program.exceeds, reserved, whole) + others
    parts = {name: size for name, size in parts.items() if size}
    return parts | {"temporary": max(0, peak - sum(parts.values()))}


def _program(
    work: Workload, resident: Resident, program: Compiled, filled: float
) -> dict[str, Any]:
    """Returns what the plan says of one program.

    Args:
      filled: share of the cache that decoding reads.
    """
    r = work.config.rollout
    slot = r.max_prompt_tokens + r.max_response_tokens
    trips: tuple[float, ...]
    share = 1.0
    if program.name == "decode":
        # One run draws a few tokens. A kernel or a loop reads the filled cache.
        trips, share = (1, -(-filled * slot // resident.columns)), filled
    else:
        # The head's chunks, with every token scored.
        trips = (-(-work.local_tokens // work.config.model.head_chunk),)
    chip = work.trainer.chip
    reading = hlo.read(program.text, trips=trips, kernel_share=share, cache=chip.cache)
    flops = 0.0
    if program.name in resident.tokens:
        # Whole rows of one text each, the most that attention can take.
        length = filled * slot if program.name == "decode" else work.row_length
        flops = work.flops(program.name, resident.tokens[program.name], length)
    seconds = {
        "compute": flops / chip.flops,
        "memory": reading.hbm_bytes / chip.hbm,
        "links": sum(
            c.sent / work.trainer.link_rate(c.reach) for c in reading.collectives
        ),
    }
    parts = memory(resident, program)
    peak = sum(parts.values())
    return {
        "parts": parts,
        "peak_bytes": peak,
        "fits": peak <= work.target.usable and not program.exceeds,
        "temporary_bytes": program.temporary,
        "kernel_calls": reading.kernel_calls,
        "flops": flops,
        "hbm_bytes": reading.hbm_bytes,
        "collectives": [c._asdict() | {"sent": c.sent} for c in reading.collectives],
        "seconds": seconds,
        "bound_by": max(seconds, key=seconds.__getitem__),
        "compile_seconds": program.seconds,
    }


# -- text ----------------------------------------------------------------------------


def describe(plan: Mapping[str, Any]) -> str:
    """Returns the plan as text."""
    trainer, sampler = plan["trainer"], plan["sampler"]
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
    lines += ["", *_table(plan["programs"]), "", *_bars(plan), ""]
    lines.append("It fits." if plan["fits"] else f"It does not fit: {_misfit(plan)}")
    return "\n".join(lines)


def gib(size: float) -> str:
    return f"{size / _GIB:,.2f}"


def _misfit(plan: Mapping[str, Any]) -> str:
    name, worst = max(plan["programs"].items(), key=lambda row: row[1]["peak_bytes"])
    return (
        f"{name} needs {gib(worst['peak_bytes'])} GiB of each device, usable are"
        f" {gib(plan['memory']['usable_bytes'])}."
    )


def _table(programs: Mapping[str, Any]) -> list[str]:
    """Returns one row for each program, of one run of it on each device."""
    header = (
        "program", "peak GiB", "temporary", "kernels", "TFLOP", "memory GB",
        "collectives", "sent GB", "at least ms", "bound by", "compiled in s",
    )  # fmt: skip
    rows = [
        (
            name,
            gib(row["peak_bytes"]) + ("" if row["fits"] else "!"),
            gib(row["temporary_bytes"]),
            str(row["kernel_calls"]),
            f"{row['flops'] / 1e12:,.2f}",
            f"{row['hbm_bytes'] / 1e9:,.2f}",
            str(len(row["collectives"])),
            f"{sum(c['sent'] for c in row['collectives']) / 1e9:,.2f}",
            f"{1e3 * max(row['seconds'].values()):,.2f}",
            row["bound_by"],
            f"{row['compile_seconds']:,.0f}",
        )
        for name, row in programs.items()
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    ]


def _bars(plan: Mapping[str, Any]) -> list[str]:
    """Returns a bar of memory for each program; a full bar is the largest peak."""
    usable, programs = plan["memory"]["usable_bytes"], plan["programs"]
    full = max(row["peak_bytes"] for row in programs.values())
    used = {part for row in programs.values() for part in row["parts"]}
    lines = [
        f"Memory of each device, of {gib(usable)} GiB usable"
        f" ({gib(plan['memory']['device_bytes'])} in all): "
        + ", ".join(f"{k} {name}" for name, k in _LETTERS.items() if name in used)
    ]
    width = max(map(len, programs))
    for name, row in programs.items():
        sizes = [row["parts"].get(part, 0) for part in _LETTERS]
        ends = [round(_BAR * end / full) for end in itertools.accumulate(sizes)]
        starts = [0, *ends]
        bar = "".join(
            letter * (end - start)
            for letter, start, end in zip(_LETTERS.values(), starts, ends, strict=False)
        )
        lines.append(f"{name.ljust(width)} {bar} {gib(row['peak_bytes'])}")
    return lines
