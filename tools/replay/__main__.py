"""Repeats the last steps of a run from a dump, and says where they went wrong.

python -m tools.replay DUMP [--base FOLDER] [--objective MODULE:FUNCTION] [--json OUT]

From the dump's checkpoint each recorded update is done again, with the run's own
programs, and held to what was noted of it then. The first one that is not finite, or
else the last step, is looked into. Nothing is written. No function that the dump names
is imported: where the run's objective was one of yours, name it again.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from configs.reading import user_path
from configs.schema import take
from models import hf
from models.config import Qwen2Config
from models.qwen2 import Qwen2, abstract_params
from rl import build
from rl.base_model import make_model
from rl.checkpoint import Checkpoints
from rl.engine import Engine
from rl.files import replace_json
from rl.hosts.devices import join_cpu_devices
from rl.plan import keep_programs, start_devices
from rl.progress import phase
from rl.types import Batch, Hyper
from rl.update.examine import by_path, examine
from rl.update.objective import make_objective
from rl.workdir.manifest import folder_hashes
from rl.workdir.proof import library_versions
from rl.workdir.recorder import Record, plain, read_journal, read_record, recorded
from sharding.mesh import make_mesh
from tools.replay.blame import find_culprit, gradient, gradient_is_finite
from tools.replay.origin import find_origin

_GAP = 0.01  # nats per token, above which it is asked which version drew the tokens


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dump", type=user_path, metavar="DUMP")
    parser.add_argument(
        "--base", type=user_path, metavar="FOLDER", help="the base model, if it moved"
    )
    parser.add_argument(
        "--objective", default="", metavar="MODULE:FUNCTION", help="the run's, if yours"
    )
    parser.add_argument("--json", type=user_path, metavar="OUT", help="write here")
    arguments = parser.parse_args(argv)
    try:
        result = replay(arguments.dump, arguments.base, arguments.objective)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    if arguments.json:
        replace_json(arguments.json, result)


def replay(
    dump: pathlib.Path, base: pathlib.Path | None = None, objective: str = ""
) -> dict[str, Any]:
    """Repeats a dump's steps, and prints what it finds.

    Args:
      dump: the folder.
      base: the base model's, where it is no more where the dump says.
      objective: the run's "module:function", where it is none of ours.

    Returns:
      The dump's `step` and `cause`, the `steps` repeated with what differs of each, and
      what was `found`, if anything.

    Raises:
      ValueError: it is no dump, or does not hold all steps since its checkpoint.
    """
    about, config = _read(dump / "dump.json"), ConfigDict(_read(dump / "config.json"))
    named = config.objective.function
    if ":" in named and named != objective:
        raise ValueError(
            f"{dump}: its objective is {named!r}, which is imported only where you say"
            f" so: --objective {named}"
        )
    start_devices(config)
    if config.compiled and pathlib.Path(config.compiled).is_dir():
        keep_programs(compiled=config.compiled)
    print(f"dump of step {about['step']}: {about['cause']}")
    for line in _changes(about):
        print(f"not as it was: {line}")
    updates, params = read_journal(dump / "recorder")
    records = _records(dump, about, updates)
    steps, found, gaps = [], {}, {}
    with contextlib.closing(_open(config, dump, about, base)) as engine:
        for record in records:
            if _gap(updates.get(records[-1].step, ())) > _GAP:
                gaps[record.step] = _gap_under(engine, records[-1])
            number, noted = record.step + 1, updates.get(record.step)
            with phase(f"step {number}", f"{len(record.hypers)} updates"):
                stats, in_step = _repeat(engine, record, noted)
            engine.publish(number)
            differs = _differing(stats, noted, engine.digests, params.get(number))
            steps.append({"step": number, "differs": differs})
            print(f"step {number}: {'; '.join(differs) or 'bit for bit as it was'}")
            for line in in_step.get("lines", ()):
                print(f"  {line}")
            found = found or in_step
    if gaps:
        found["gap_by_version"] = gaps
        fits = min(gaps, key=gaps.get)
        print(
            f"the tokens of step {records[-1].step + 1} fit version {fits} best:"
            f" {gaps[fits]:.4f} nats per token, {gaps[records[-1].step]:.4f} under"
            f" version {records[-1].step}, with which the step began"
        )
    return {**about, "dump": str(dump), "steps": steps, "found": found}


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.parent}: no dump: {path.name}: {error}") from None


def _changes(about: Mapping[str, Any]) -> list[str]:
    """What may keep the numbers from being the same."""
    before = {**about["versions"], "devices": about["devices"]}
    devices = [jax.device_count(), jax.devices()[0].device_kind]
    now = {**library_versions(), "devices": devices}
    return [
        f"{name}: {before.get(name)} -> {now.get(name)}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _records(
    dump: pathlib.Path, about: Mapping[str, Any], updates: Mapping[int, Any]
) -> list[Record]:
    folder, since = dump / "recorder", about["checkpoint"]
    there = [step for step in recorded(folder) if step >= since]
    missing = sorted({step for step in updates if step >= since} - set(there))
    if missing:
        raise ValueError(
            f"{dump}: the records of {len(missing)} steps after step {since}, its"
            f" checkpoint's, are gone, the first is that of step {missing[0] + 1}: they"
            " took more than recorder.max_gb"
        )
    return [read_record(folder / f"{step}.safetensors") for step in there]


class _Nobody:
    """In the sampler's place: nothing is sampled."""

    def publish(self, params: Any, version: int) -> None:
        pass

    def make_room(self) -> None:
        pass

    def close(self) -> None:
        pass


def _open(
    config: ConfigDict,
    dump: pathlib.Path,
    about: Mapping[str, Any],
    base: pathlib.Path | None,
) -> Engine:
    """The run's engine, in the state of the dump's checkpoint or of the base."""
    mesh = take(make_mesh, config.mesh)()
    join_cpu_devices(mesh)
    architecture = Qwen2Config.from_folder(dump / "assets")
    model = take(make_model, config.model)(architecture, mesh)
    objective = take(make_objective, config.objective)()
    step = build.make_update(config, model, objective)
    reference, params = None, abstract_params(model)[0]
    if objective.needs_reference or not about["checkpoint"]:
        params = _load_base(base or pathlib.Path(about["base"]), dump, model)
        reference = build.make_reference(objective, params, dtype=config.model.dtype)
    if about["checkpoint"]:
        state = jax.eval_shape(step.init, params)
    else:
        state = step.init(params)
    engine = take(Engine, config.objective)(
        config=architecture,
        step=step,
        state=state,
        sampler=_Nobody(),
        checkpoints=Checkpoints(dump / "checkpoints", keep=1, on_damage="stop"),
        assets=dump / "assets",
        reference=reference,
    )
    begun = f"step {about['checkpoint']}" if about["checkpoint"] else "the base"
    with phase("restore", begun):
        engine.restore()
    return engine


def _load_base(folder: pathlib.Path, dump: pathlib.Path, model: Qwen2):
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; --base says where the base is")
    stated = _read(dump / "manifest.json")["identity"]["base"]
    for name, digest in folder_hashes(folder).items():
        if name.endswith(".safetensors") and stated.get(name) != digest:
            raise ValueError(f"{folder / name}: is not of the base that the run had")
    return hf.load_params(folder, model, model.mesh)


def _repeat(
    engine: Engine, record: Record, noted: Sequence[Mapping[str, Any]] | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A step's updates again; the first that is not finite is looked into."""
    stats, found = [], {}
    placed = engine.prepare(record.mini_batches, record.hypers)
    every = zip(record.hypers, itertools.cycle(placed), strict=False)
    for number, (hyper, micro) in enumerate(every):
        if not found and (noted is None or noted[number]["skipped"]):
            found = _look(engine, record, number, micro, hyper)
        engine.state, of_update = engine.step.update(engine.state, micro, hyper)
        stats.append(plain(jax.device_get(of_update)))
    return stats, found


def _look(
    engine: Engine, record: Record, number: int, micro: Sequence[Batch], hyper: Hyper
) -> dict[str, Any]:
    """What makes an update fail; empty where nothing does."""
    step, state = engine.step, engine.state
    update = f"update {number + 1} of {len(record.hypers)}"
    found = {"step": record.step + 1, "update": number + 1}
    if gradient_is_finite(step, state, micro, hyper):
        carry = gradient(step, state, micro, hyper)
        params, opt_state = step.propose(state, carry, hyper)
        tree = {"params": params, "opt_state": opt_state}
        bad = [(name, f.nonfinite) for name, f in examine(tree).items() if f.nonfinite]
        if not bad:
            return {}
        name, count = bad[0]
        line = (
            f"{update}: the gradient is finite; at learning rate"
            f" {float(hyper.learning_rate):g} it would make {count:,} of"
            f" {by_path(tree)[name].size:,} entries of {name} not finite"
        )
        return {**found, "tensor": name, "lines": [line, _largest(state.params)]}
    lines = [f"{update}: the gradient is not finite", _largest(state.params)]
    alone = [
        i
        for i, b in enumerate(micro)
        if not gradient_is_finite(step, state, [b], hyper)
    ]
    if not alone:
        lines.append(f"only together: each of its {len(micro)} micro-batches is finite")
        return {**found, "lines": lines}
    batch = micro[alone[0]]
    culprit = find_culprit(step, state, batch, hyper, record.drawn)
    lines.append(f"micro-batch {alone[0] + 1} of {len(micro)}: {culprit}")
    if culprit.drawn:
        found |= {"completion": dataclasses.asdict(culprit.drawn)}
    found |= {"token": culprit.token, "micro_batch": alone[0] + 1}
    if culprit.inputs:
        name = next(iter(culprit.inputs))
        lines.append(f"the first tensor: {name}, an input of the update")
        return {**found, "tensor": name, "lines": lines}

    def of_culprit(params, batch):
        return gradient(step, state.replace(params=params), [batch], hyper)

    origin = find_origin(of_culprit, state.params, culprit.batch)
    if origin:
        lines.append(f"the first tensor: {origin}")
        found |= {"tensor": dataclasses.asdict(origin)}
    return {**found, "lines": lines}


def _largest(params: Any) -> str:
    tops = {name: float(jnp.max(jnp.abs(x))) for name, x in by_path(params).items()}
    name = max(tops, key=tops.get)
    return f"the largest parameter before it: {tops[name]:.3g}, in {name}"


def _differing(
    stats: Sequence[Mapping[str, Any]],
    noted: Sequence[Mapping[str, Any]] | None,
    digests: Mapping[str, int],
    noted_digests: Mapping[str, int] | None,
) -> list[str]:
    """What did not come out as it was noted, bit for bit."""
    if noted is None:
        return ["the run did not get to its end"]
    lines = []
    for number, (now, before) in enumerate(zip(stats, noted, strict=True), 1):
        for name, value in by_path(before).items():
            again = by_path(now)[name]
            if not np.array_equal(again, value, equal_nan=True):
                lines.append(f"update {number}: {name} is {again}, was {value}")
    for name, digest in (noted_digests or {}).items():
        if digests[name] != digest:
            lines.append(f"{name} has other bits")
    return lines


def _gap(noted: Sequence[Mapping[str, Any]]) -> float:
    """Between sampler and trainer, nats per token, at the start of a step."""
    if not noted or not noted[0]["sum"]["fresh"]:
        return 0.0
    return noted[0]["sum"]["sampler_gap"] / noted[0]["sum"]["fresh"]


def _gap_under(engine: Engine, record: Record) -> float:
    """The same of a step's completions, under the parameters there are now."""
    gaps = [
        np.abs(engine.score(batch, record.hypers[0]) - batch.sampler_logprobs)[
            batch.loss_mask & ~batch.stale
        ]
        for batch in itertools.chain.from_iterable(record.mini_batches)
    ]
    return float(np.concatenate(gaps).mean())


if __name__ == "__main__":
    main()
