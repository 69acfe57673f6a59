"""What was compiled, put together: as JSON has it, and as a person reads it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from models.qwen2 import Qwen2, abstract_params
from rl.checkpoint import SAVED_BYTES_PER_SECOND, state_bytes
from rl.progress import duration
from rl.update.optimizer import make_optimizer
from sharding.mesh import SIZES
from tools.plan import hlo, phases, speed
from tools.plan.compiling import Compiled
from tools.plan.lengths import Lengths
from tools.plan.pace import make_figures
from tools.plan.programs import Resident
from tools.plan.timeline import make_variants, simulate
from tools.plan.workload import Workload

_GIB = 2**30


def make_report(
    work: Workload,
    resident: Resident,
    compiled: Sequence[Compiled],
    *,
    lengths: Lengths,
    rate: float,
    price: float,
    given: Mapping[str, float],
    variants: bool,
) -> dict[str, Any]:
    """The whole plan.

    Args:
      work: the run.
      resident: what stays on each device.
      compiled: its programs.
      lengths: of completions.
      rate: of vLLM's servers, completion tokens per second in all; 0: unknown.
      price: of one device for an hour; 0: unknown.
      given: figures of the timeline that are not to be reckoned.
      variants: whether schedules are compared with other ways of sampling.
    """
    readings = [_read(work, resident, program, lengths) for program in compiled]
    found = phases.phases(work, resident, compiled)
    plan = {
        "target": str(work.target),
        "model": work.config.model.path or work.config.model.maker,
        "trainer": {
            "devices": work.trainer.count,
            **dict(zip(SIZES, work.mesh_shape, strict=True)),
        },
        "micro_batch": {"rows": work.rows, "row_length": work.row_length},
        "remat": work.config.model.remat,
        "offload_optimizer": work.config.mesh.offload_optimizer,
        "memory": {
            "device_bytes": work.target.chip.memory,
            "usable_bytes": work.target.usable,
        },
        "programs": phases.program_rows(compiled, readings, found),
        "phases": [
            dataclasses.asdict(phase) | {"bytes": phase.bytes} for phase in found
        ],
        "fits": all(phase.fits for phase in found),
        "sampler": {
            "devices_per_copy": resident.tensor,
            "copies": resident.copies,
            "slots": resident.batch,
        },
        "checkpoint": _checkpoint(work),
        "lengths": {
            "source": lengths.source,
            "mean": lengths.mean,
            "accepted": lengths.accepted,
        },
    }
    rooflines = {
        program.name: speed.roofline(
            reading, work.trainer, kernel_flops=_kernel_flops(work, program, lengths)
        )
        for program, reading in zip(compiled, readings, strict=True)
    }
    if work.embedded:
        sampling = speed.embedded_sampling(work, lengths, resident, rooflines)
    else:
        sampling = speed.served_sampling(work, lengths, rate)
        plan["servers"] = {
            "devices": work.servers,
            "servers": sampling.samplers,
            "weight_bytes": speed.weight_bytes(work),
            "completions_in_cache": sampling.slots,
            "fits": sampling.slots > 0,
        }
        plan["fits"] &= plan["servers"]["fits"]
    if plan["fits"]:
        plan |= _times(
            work, lengths, sampling, rooflines, resident, price, given, variants
        )
    return plan


def _read(
    work: Workload, resident: Resident, program: Compiled, lengths: Lengths
) -> hlo.Reading:
    is_weight = phases.weight_test(
        work.model,
        work.mesh_shape,
        resident.tensor,
        gradients=program.name in ("accumulate", "apply"),
    )
    share = 1.0
    if program.name == "decode":
        # One look at what has ended; then the cache, as far as it is read in the mean,
        # by a loop or by a kernel.
        trips = (1, -(-lengths.context // resident.columns))
        r = work.config.rollout
        share = lengths.context / (r.max_prompt_tokens + r.max_response_tokens)
    else:
        # The head's chunks, where every token is scored.
        trips = (-(-work.local_tokens // work.config.model.head_chunk),)
    return hlo.read(program.text, is_weight=is_weight, trips=trips, kernel_share=share)


def _kernel_flops(work: Workload, program: Compiled, lengths: Lengths) -> float:
    """Of attention, per device: forward, again under remat, and 2.5 times back."""
    again = 1 if work.config.model.remat == "none" else 2
    passes = {"score": 1, "accumulate": again + 2.5}.get(program.name, 0)
    squares = work.local_tokens * lengths.squares() / lengths.sequence
    return passes * speed.attention_flops(work, squares) / work.mesh_shape[2]


def _checkpoint(work: Workload) -> dict[str, float]:
    c = work.config
    model = Qwen2(work.model, param_dtype=jnp.dtype(c.model.param_dtype))
    size = state_bytes(abstract_params(model)[0], make_optimizer(**c.optimizer))
    return {"bytes": size, "grace_seconds": size / SAVED_BYTES_PER_SECOND}


def _times(
    work: Workload,
    lengths: Lengths,
    sampling: speed.Sampling,
    rooflines: Mapping[str, speed.Roofline],
    resident: Resident,
    price: float,
    given: Mapping[str, float],
    variants: bool,
) -> dict[str, Any]:
    training = speed.make_training(work, lengths, rooflines)
    figures = make_figures(work, lengths, sampling, training, rooflines, resident)
    figures = figures.given(given)
    # The embedded sampler shares its devices with the update.
    schedules = ("sync",) if work.embedded else ("sync", "one_step_off", "async")
    timeline = {
        name: simulate(work.config, figures, schedule=name) for name in schedules
    }
    pace = figures.pace
    told = {
        "rooflines": {
            name: dataclasses.asdict(r) | {"bound": r.bound, "by": r.by}
            for name, r in rooflines.items()
        },
        "figures": figures.rows(),
        "step": {
            "sample": timeline["sync"].sample,
            "score": pace.score,
            "update": pace.update,
            "publish": pace.publish,
            "mfu": training.mfu,
            "by": training.by,
            "sampling": figures.sources["fixed"].partition(":")[0],
            "train": pace.train,
        },
        "timeline": {name: found.row() for name, found in timeline.items()},
    }
    if variants and not work.embedded:
        told["variants"] = make_variants(work, figures, schedules)
    if not work.embedded and pace.train:
        told["sampling_devices_to_balance"] = max(
            1, round(told["step"]["sample"] * max(1, work.servers) / pace.train)
        )
    if price:
        seconds = timeline[work.config.rollout.schedule].seconds
        hours = 1000 * seconds / 3600
        told["cost_per_1000_steps"] = price * work.target.count * hours
    return told


# -- for a person --------------------------------------------------------------------


def describe(plan: Mapping[str, Any]) -> str:
    """The plan as text."""
    mesh = plan["trainer"]
    usable = plan["memory"]["usable_bytes"]
    lines = [
        f"{plan['model']} on {plan['target']}: trainer on {mesh['devices']},"
        f" data {mesh['data']} x fsdp {mesh['fsdp']} x tensor {mesh['tensor']},"
        f" micro-batch {plan['micro_batch']['rows']} x"
        f" {plan['micro_batch']['row_length']}, remat {plan['remat']}"
        + (", moments on the host" if plan["offload_optimizer"] else ""),
        "",
        f"Memory of each device, GiB of {gib(usable)} that programs may have"
        f" ({gib(plan['memory']['device_bytes'])} in all):",
        *_memory_table(plan),
        "",
        "Programs:",
        *_program_table(plan),
        "",
        "Checkpoint: {:,.1f} GB; a stop needs {:,.0f} s to save, at 1 GB/s".format(
            plan["checkpoint"]["bytes"] / 1e9, plan["checkpoint"]["grace_seconds"]
        ),
    ]
    if "servers" in plan:
        s = plan["servers"]
        lines.append(
            f"Servers: {s['servers']} on {s['devices']} devices, each with"
            f" {gib(s['weight_bytes'])} GiB of weights and cache for"
            f" {s['completions_in_cache']:,} completions"
        )
    if "step" in plan:
        lines += ["", *_step_lines(plan)]
    lines += ["", "It fits." if plan["fits"] else "It does not fit: " + misfit(plan)]
    return "\n".join(lines)


def misfit(plan: Mapping[str, Any]) -> str:
    """Which phase needs most beyond what there is."""
    worst = max(plan["phases"], key=lambda phase: phase["bytes"])
    if worst["fits"]:
        return "vLLM's servers have no room for a cache beside the weights."
    return (
        f"{worst['name']} needs {gib(worst['bytes'])} GiB of each device, and there are"
        f" {gib(plan['memory']['usable_bytes'])}."
    )


def gib(size: float) -> str:
    return f"{size / _GIB:,.2f}"


def _memory_table(plan) -> list[str]:
    names = ["masters", "moments", "gradients", "served", "cache", "activations"]
    for name in ("prompts", "published", "reference"):
        if any(name in phase["parts"] for phase in plan["phases"]):
            names.insert(3, name)
    return _aligned(
        ["phase", *names, "peak", "fits"],
        [
            [
                phase["name"],
                *(gib(phase["parts"].get(name, 0)) for name in names),
                gib(phase["bytes"]),
                "yes" if phase["fits"] else "no",
            ]
            for phase in plan["phases"]
        ],
    )


def _program_table(plan) -> list[str]:
    rows = []
    for name, row in plan["programs"].items():
        inside = [c for c in row["collectives"] if c["in_loop"]]
        moved = sum(c["bytes"] * c["times"] for c in row["collectives"])
        rows.append(
            [
                name,
                gib(row["temp_bytes"]),
                str(row["kernel_calls"]),
                f"{row['flops'] / 1e12:,.1f}",
                f"{row['hbm_bytes'] / 1e9:,.0f}",
                f"{len(row['collectives'])}, {len(inside)} in loops,"
                f" {sum(c['of_weight'] for c in inside)} of weights there",
                f"{moved / 1e9:,.1f}",
                f"{row['compile_seconds']:,.0f}",
            ]
        )
    return _aligned(
        [
            "program",
            "temporary, GiB",
            "kernels",
            "TFLOP",
            "memory, GB",
            "collectives",
            "GB",
            "compiled in, s",
        ],
        rows,
    )


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    ]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _step_lines(plan) -> Iterator[str]:
    step = plan["step"]
    yield (
        f"A step, with completions as in {plan['lengths']['source']!r} (mean"
        f" {plan['lengths']['mean']:,.0f} tokens), by these figures:"
    )
    rows = [
        [name, _figure(row["value"]), row["source"]]
        for name, row in plan["figures"].items()
    ]
    yield from (f"  {name:<9}{value:>9}  {how}" for name, value, how in rows)
    yield (
        f"The update is bound by {step['by']}, at most {step['mfu']:.0%} of the peak."
        " Simulated:"
    )
    named = [({"schedule": name}, row) for name, row in plan["timeline"].items()]
    yield from _timeline_table(named)
    if "variants" in plan:
        yield "With other ways of sampling:"
        yield from _timeline_table([(v["way"], v) for v in plan["variants"]])
    if "sampling_devices_to_balance" in plan:
        yield (
            f"{plan['sampling_devices_to_balance']} sampling devices keep up with this"
            " trainer"
        )
    if "cost_per_1000_steps" in plan:
        yield f"1,000 steps cost {plan['cost_per_1000_steps']:,.0f}"


def _timeline_table(rows: Sequence[tuple[Mapping, Mapping]]) -> list[str]:
    header = [
        "a step",
        "steps/h",
        "a batch",
        "trainer idle",
        "servers idle",
        "slots filled",
        "stale tokens",
        "by versions",
        "drawn tokens trained on",
        "worth of a batch",
    ]
    return _aligned(
        [*rows[0][0], *header],
        [
            [
                *way.values(),
                duration(row["seconds"]),
                f"{row['steps_per_hour']:.1f}",
                duration(row["sample"]),
                f"{row['trainer_idle']:.0%}",
                f"{row['servers_idle']:.0%}",
                f"{row['slots_filled']:.0%}",
                f"{row['off_policy']:.0%}",
                f"{sum(int(n) * share for n, share in row['staleness'].items()):.2f}",
                f"{row['trained']:.0%}",
                f"{row['worth']:.0f}",
            ]
            for way, row in rows
        ],
    )
