"""Dumps the first step with a non-finite update to `WORKDIR/dumps/STEP/`.

    dump.json            step, cause, checkpoint; `Hyper` and statistics of each update
    batches.safetensors  packed rows, by MINI_BATCH/MICRO_BATCH/FIELD of a `Batch`
    completions.jsonl    the completions of the step's groups
    checkpoint/          the newest checkpoint from before the step, if any

docs/monitoring.md explains how to repeat the step.
"""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from rl import files
from rl.checksums import steps_in
from rl.errors import one_line
from rl.types import Batch, Group, Hyper


def dump_updates(
    workdir: pathlib.Path,
    step: int,
    groups: Sequence[Group],
    mini_batches: Sequence[Sequence[Batch]],
    hypers: Sequence[Hyper],
    stats: Sequence[Mapping[str, Any]],
) -> None:
    """Writes a dump unless the run has one; prints a warning if writing fails.

    `step` is the number of complete steps. No save may be in progress.
    """
    folder = workdir / "dumps" / str(step + 1)
    if folder.parent.exists():
        return
    partial = workdir / ".dump.partial"
    arrays = {
        f"{m}/{b}/{field.name}": np.asarray(getattr(batch, field.name))
        for m, micro_batches in enumerate(mini_batches)
        for b, batch in enumerate(micro_batches)
        for field in dataclasses.fields(Batch)
    }
    skipped = [i + 1 for i, s in enumerate(stats) if s["skipped"]]
    saved = steps_in(workdir / "checkpoints")
    checkpoint = max((s for s in saved if s <= step), default=None)
    about = {
        "step": step + 1,
        "cause": f"not finite: update {', '.join(map(str, skipped))} of {len(stats)}",
        "checkpoint": checkpoint,
        "hypers": [_numbers(vars(hyper)) for hyper in hypers],
        "updates": [_numbers(s) for s in stats],
    }
    try:
        shutil.rmtree(partial, ignore_errors=True)
        (new := partial / folder.name).mkdir(parents=True)
        safetensors.numpy.save_file(arrays, new / "batches.safetensors")
        files.replace_rows(new / "completions.jsonl", _completions(groups))
        if checkpoint is not None:
            # Hard links use no space and stay valid if the checkpoint is removed.
            source = workdir / "checkpoints" / str(checkpoint)
            target = new / "checkpoint" / source.name
            shutil.copytree(source, target, copy_function=_link)
        files.replace_json(new / "dump.json", about)
        partial.rename(folder.parent)
    except (OSError, safetensors.SafetensorError) as error:
        print(
            f"WARNING: {folder}: dump not written ({one_line(error)}); the run"
            " continues without it",
        )
    else:
        print(f"dumped the updates of step {step + 1} to {folder}", flush=True)


def _completions(groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    for group in groups:
        verdicts = zip(group.completions, group.correct, group.rewards, strict=True)
        for completion, correct, reward in verdicts:
            yield {
                "problem": group.problem.id,
                "prompt_ids": group.prompt_ids.tolist(),
                "token_ids": completion.token_ids.tolist(),
                "sampler_logprobs": completion.sampler_logprobs.tolist(),
                "versions": completion.versions.tolist(),
                "finish_reason": completion.finish_reason,
                "correct": bool(correct),
                "reward": float(reward),
            }


def _numbers(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x).item(), dict(tree))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
