"""What a run is: hashes of its config, base, data and code, kept in its workdir.

`WORKDIR/manifest.json` holds the identity of the newest start and the history of all,
and where that start was made.
A start that would silently be another run is refused, with the difference.
"""

import concurrent.futures
import dataclasses
import datetime
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from configs.schema import config_json, flatten
from rl import files
from rl.checkpoint import DAMAGED, steps_in
from rl.run_spec import RunSpec
from rl.workdir.export import commit
from rl.workdir.proof import library_versions

# What may change from one start of a run to the next: by key of the config, or all
# below it. Everything else would make it another run.
MAY_CHANGE = (
    "steps",
    "compiled",
    "mesh",
    "log",
    "profile",
    "eval",
    "data.eval",
    "data.eval_args",
    "checkpoint",
    "export",
    "alarms",
    "reward.workers",
    "data.unreadable_golds",
    "rollout.vllm",
    # How it is computed, and not what.
    "model.attention",
    "model.head_chunk",
    "model.remat",
    "model.unroll",
    "batch.micro_tokens",
    "batch.row_lengths",
    "rollout.slots",
    "rollout.tensor",
    # What these lead to is hashed: the base, the problems, their prompts.
    "model.path",
    "model.maker",
    "model.maker_args",
    "data.train",
    "data.train_args",
    "data.fields",
    "data.template",
)
# Settings of JAX that change what is drawn or computed, and their defaults; the
# environment may set them too.
_OF_JAX = {
    "jax_default_prng_impl": "threefry2x32",
    "jax_enable_x64": False,
    "jax_random_seed_offset": 0,
    "jax_threefry_partitionable": True,
}
_ROOMS = ("rl", "models", "rollout", "sharding")
_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Files of a model's folder that a run reads.
_OF_A_MODEL = (".safetensors", ".json", ".txt", ".jinja")
# Names of functions that a config may give; their files are code of the run.
_FUNCTIONS = (
    "reward.function",
    "eval.reward",
    "objective.function",
    "objective.advantage",
    "model.maker",
    "data.train",
    "data.eval",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One start of a run.

    Attributes:
      config: every key by its dotted name.
      base: SHA-256 of every file of the base model's folder, by name.
      data: SHA-256 of the training problems in their order, with their prompts' tokens
        (`train`), of those held out (`held_out`), and of the stop tokens (`stop`).
      code: SHA-256 of each room of the project, and of the files of functions that the
        config names.
      versions: of Python and the libraries.
      hosts: processes and devices.
      jax: settings of JAX that change numbers, where they are not its defaults.
    """

    config: Mapping[str, Any]
    base: Mapping[str, str]
    data: Mapping[str, str]
    code: Mapping[str, str]
    versions: Mapping[str, str]
    hosts: Mapping[str, int]
    jax: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A difference between two starts; `refused` where it would make another run."""

    key: str
    before: Any
    now: Any
    refused: bool

    def __str__(self) -> str:
        return f"{self.key}: {_short(self.before)} -> {_short(self.now)}"


def identify(spec: RunSpec, base: pathlib.Path) -> Identity:
    """Hashes all that a run depends on.

    Args:
      spec: the run.
      base: the base model's folder, its weights there.
    """
    c = spec.config
    return Identity(
        config=flatten(json.loads(config_json(c))),
        base=folder_hashes(base),
        data={
            "train": _problems_hash(spec, spec.train),
            "held_out": _problems_hash(spec, spec.held_out),
            "stop": _hash([repr(tuple(spec.sampling.stop_token_ids))]),
        },
        code=_code(c),
        versions=library_versions(),
        hosts={"processes": jax.process_count(), "devices": jax.device_count()},
        jax={k: v for k, v in _settings_of_jax().items() if v != _OF_JAX[k]},
    )


def _settings_of_jax() -> dict[str, Any]:
    return {name: getattr(jax.config, name) for name in _OF_JAX}


def differences(before: Identity, now: Identity) -> list[Change]:
    """What differs, refused differences first."""
    changes = []
    for section in (field.name for field in dataclasses.fields(Identity)):
        old, new = getattr(before, section), getattr(now, section)
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                key = f"{section}.{name}"
                pair = old.get(name), new.get(name)
                changes.append(Change(key, *pair, _refused(section, name)))
    return sorted(changes, key=lambda change: not change.refused)


def _refused(section: str, name: str) -> bool:
    if section == "config":
        return not any(name == k or name.startswith(f"{k}.") for k in MAY_CHANGE)
    if section == "data":
        return name != "held_out"
    return section in ("base", "jax")


def begin(workdir: pathlib.Path, now: Identity, *, accept_changes: bool) -> list[str]:
    """Holds a start to the workdir's manifest, and writes it there.

    Args:
      workdir: of the run; locked.
      now: this start.
      accept_changes: whether differences that would be refused are recorded instead.

    Returns:
      A line for each difference that was accepted.

    Raises:
      ValueError: what would be another run, with every difference; or the workdir lacks
        checkpoints that its metrics speak of. Nothing was written.
    """
    path = workdir / "manifest.json"
    if not accept_changes:
        check_checkpoints(workdir)
    content = _read(path)
    changes = []
    if content is not None:
        changes = differences(Identity(**content["identity"]), now)
    elif steps_in(workdir / "checkpoints") and not accept_changes:
        raise ValueError(
            f"{path}: no such file, though there are checkpoints: nobody knows of which"
            " run; --accept_changes goes on"
        )
    if not accept_changes:
        _refuse(workdir, changes)
    history = content["history"] if content else []
    if content is None or changes:
        history.append(
            {
                "time": _now(),
                "after": max(steps_in(workdir / "checkpoints"), default=0),
                "changes": [dataclasses.asdict(change) for change in changes],
            }
        )
        content = {"identity": dataclasses.asdict(now), "history": history}
    files.replace_json(path, content | {"start": _start()})
    return [f"changed: {change}" for change in changes]


def check_config(workdir: pathlib.Path, spec: RunSpec) -> None:
    """Refuses another run's config, before a base is made; see `begin` for errors."""
    content = _read(workdir / "manifest.json")
    if content is None:
        return
    before = Identity(**content["identity"])
    config = flatten(json.loads(config_json(spec.config)))
    now = dataclasses.replace(before, config=config)
    _refuse(workdir, differences(before, now))


def check_problems(workdir: pathlib.Path, spec: RunSpec) -> None:
    """Refuses a plan that trains on other problems, or in another order, than the run.

    Raises:
      ValueError: it does, or the workdir is no run's.
    """
    content = _read(workdir / "manifest.json")
    if content is None:
        raise ValueError(f"{workdir}: no run's folder (no manifest.json)")
    if content["identity"]["data"].get("train") != _problems_hash(spec, spec.train):
        raise ValueError(
            f"{workdir}: its run trains on other problems than config.data.train="
            f"{spec.config.data.train!r} gives"
        )


def _refuse(workdir: pathlib.Path, changes: Iterable[Change]) -> None:
    if refused := [str(change) for change in changes if change.refused]:
        raise ValueError(
            f"{workdir} holds another run: {'; '.join(refused)};"
            " --accept_changes goes on, and records it"
        )


def check_checkpoints(workdir: pathlib.Path) -> None:
    """Refuses a workdir without the checkpoints that its metrics speak of.

    Raises:
      ValueError: going on would begin anew, or further back, and lose the metrics.
    """
    path, spoken = workdir / "metrics.jsonl", 0
    for where, row in files.read_rows(path, appended=True):
        step = row.get("checkpoint/step", 0)
        if not isinstance(step, int):
            raise ValueError(f"{where}: checkpoint/step={step!r} is no step")
        spoken = max(spoken, step)
    folder = workdir / "checkpoints"
    newest = max(steps_in(folder), default=0)
    if newest < spoken and not (folder / f"{spoken}{DAMAGED}").exists():
        there = f"the newest is of step {newest}" if newest else "there is none"
        raise ValueError(
            f"{folder}: {path.name} speaks of a checkpoint of step {spoken}, {there};"
            " put it back, take another --workdir, or go on from there, losing later"
            " metrics, with --accept_changes"
        )


def _start() -> dict[str, Any]:
    """Of this start, what makes no other run of it: for a reader."""
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    cores = f"{platform.machine()}, {os.cpu_count()} cores"
    return {"time": _now(), "commit": commit(), "devices": devices, "machine": cores}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


def _read(path: pathlib.Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        identity = Identity(**content["identity"])
        sections = [getattr(identity, f.name) for f in dataclasses.fields(identity)]
        starts = [row["after"] for row in content["history"]]
        if not all(isinstance(section, dict) for section in sections):
            raise TypeError("a section that is no object")
        if not all(isinstance(after, int) for after in starts):
            raise TypeError("a start that is after no step")
        return content
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path}: damaged ({error}); once it is gone, --accept_changes goes on"
        ) from None


def folder_hashes(base: pathlib.Path) -> dict[str, str]:
    """SHA-256 of every file of a model's folder that a run reads, by name."""
    paths = [p for p in sorted(base.iterdir()) if p.suffix in _OF_A_MODEL]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(
            zip((p.name for p in paths), pool.map(files.sha256, paths), strict=True)
        )


def _problems_hash(spec: RunSpec, problems: Iterable[Any]) -> str:
    def parts():
        for p in problems:
            meta = json.dumps(dict(p.meta), sort_keys=True, default=repr)
            yield repr((p.id, p.problem, p.answers, p.source, p.level, meta))
            yield spec.prompts[p.problem].tobytes().hex()

    return _hash(parts())


def _code(config) -> dict[str, str]:
    code = {}
    for room in _ROOMS:
        paths = sorted((_ROOT / room).rglob("*.py"))
        code[room] = _hash(f"{p.relative_to(_ROOT)}:{files.sha256(p)}" for p in paths)
    for key in _FUNCTIONS:
        section, name = key.split(".")
        modules = re.findall(
            r"[\w.]+(?=:)", str(getattr(getattr(config, section), name))
        )
        specs = filter(None, map(_spec, modules))
        found = [s.origin for s in specs if s.origin and os.path.isfile(s.origin)]
        if found:
            code[key] = _hash(files.sha256(pathlib.Path(path)) for path in found)
    return code


def _spec(module: str):
    try:
        return importlib.util.find_spec(module) if module else None
    except (ImportError, ValueError):
        return None


def _hash(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _short(value: Any) -> str:
    text = "none" if value is None else json.dumps(value)
    if isinstance(value, str) and len(value) == 64:  # a hash
        return value[:12]
    return text if len(text) <= 60 else text[:57] + "..."
