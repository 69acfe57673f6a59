"""Records a run's identity in `WORKDIR/manifest.json` and rejects silent changes.

The file holds the identity at the newest start, and the history of its changes.
"""

import datetime
import hashlib
import importlib.metadata
import json
import pathlib
import platform
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax

from configs import schema
from rl import files
from rl.checkpoint import DAMAGED
from rl.checksums import steps_in
from rl.run_spec import ProblemSet, RunSpec
from rl.workdir.export import commit

# Keys that may change when a run resumes, including all keys below them. The sources of
# base model and problems may change, since their content is hashed.
MAY_CHANGE = """
    versions hosts code data.held_out
    config.steps config.compiled config.mesh config.log config.profile config.eval
    config.data.eval config.data.eval_args config.checkpoint config.export config.alarms
    config.reward.workers config.data.unreadable config.rollout.vllm
    config.model.attention config.model.head_chunk config.model.remat
    config.batch.micro_tokens config.batch.row_lengths
    config.rollout.slots config.rollout.tensor
    config.model.path config.model.maker config.model.maker_args config.data.train
    config.data.train_args config.data.fields config.data.template
""".split()
_APART = "; accuracies before and after this change cannot be compared"
# Explanations of changes in messages, by key.
_NOTES = {
    "data.train": " (hash of the training problems, their order, answers and prompts)",
    "data.held_out": _APART,
    "config.eval.temperature": _APART,
    "config.eval.reward": _APART,
}
# Settings of JAX, with defaults, that affect results; the environment may set them.
_JAX_DEFAULTS = {
    "jax_default_prng_impl": "threefry2x32",
    "jax_enable_x64": False,
    "jax_random_seed_offset": 0,
    "jax_threefry_partitionable": True,
}
_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# Files and folders of a workdir that a new run replaces.
_REPLACED = """
    config.json metrics.jsonl samples.jsonl summary.json held_out.jsonl hf adapter
""".split()
_MODEL_FILES = (".safetensors", ".json", ".txt", ".jinja")

Identity = Mapping[str, Mapping[str, Any]]
"""Maps a section, such as config, base or data, and a name to a value."""


class Change(NamedTuple):
    key: str
    before: Any
    now: Any
    refused: bool  # whether the run resumes only with --accept_changes

    def __str__(self) -> str:
        note = _NOTES.get(self.key, "")
        return f"{self.key}: {_short(self.before)} -> {_short(self.now)}{note}"


def identify(spec: RunSpec, base: pathlib.Path) -> Identity:
    """Returns the identity of a run; `base` is the base model's folder."""
    paths = [p for p in files.visible(base, "*") if p.suffix in _MODEL_FILES]
    hashes = files.sha256_of_each(paths)
    settings = {name: getattr(jax.config, name) for name in _JAX_DEFAULTS}
    return {
        "config": _config(spec),
        "base": {p.name: sha for p, sha in zip(paths, hashes, strict=True)},
        "data": {
            "train": _hash_problems([spec.train_set]),
            "held_out": _hash_problems(spec.held_out),
            "stop": _hash([repr(spec.stop_token_ids)]),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _LIBRARIES},
        },
        "hosts": {"processes": jax.process_count(), "devices": jax.device_count()},
        "jax": {k: v for k, v in settings.items() if v != _JAX_DEFAULTS[k]},
        "code": spec.code,
    }


def differences(before: Identity, now: Identity) -> list[Change]:
    """Returns the differences between two identities, refused ones first."""
    changes = []
    for key, old, new in schema.differences(before, now):
        allowed = any(f"{key}.".startswith(f"{k}.") for k in MAY_CHANGE)
        changes.append(Change(key, old, new, not allowed))
    return sorted(changes, key=lambda change: not change.refused)


def begin(workdir: pathlib.Path, now: Identity, *, accept_changes: bool) -> list[str]:
    """Records this start of a run in its manifest; returns a line for each change.

    Raises ValueError, and writes nothing, if the manifest is damaged. Without
    `accept_changes`, also raises ValueError if a change is refused, or if there are
    checkpoints but no manifest.
    """
    path = workdir / "manifest.json"
    content = _read(path)
    changes = differences(content["identity"], now) if content else []
    steps = steps_in(workdir / "checkpoints")
    if not accept_changes:
        if content is None and steps:
            raise ValueError(
                f"{path}: missing, so the config of the checkpoints is unknown; restore"
                " this file, or give --accept_changes to resume from them"
            )
        _refuse(workdir, changes)
    time = datetime.datetime.now(datetime.UTC).isoformat()
    history = content["history"] if content else []
    if content is None or changes:
        rows = [change._asdict() for change in changes]
        history.append({"time": time, "after": max(steps, default=0), "changes": rows})
    start = {"time": time, "commit": commit()}
    files.replace_json(path, {"identity": now, "history": history, "start": start})
    return [f"changed: {change}" for change in changes]


def check_folder(workdir: pathlib.Path) -> None:
    """Raises ValueError if a new run would replace files that are in the folder."""
    if (workdir / "manifest.json").exists() or steps_in(workdir / "checkpoints"):
        return
    taken = [
        path.name
        for path in map(workdir.joinpath, _REPLACED)
        if path.is_file() or path.is_dir() and any(path.iterdir())
    ]
    if taken:
        raise ValueError(
            f"--workdir={workdir}: is not the folder of a run, but has"
            f" {', '.join(taken)}, which a run would replace; give a new folder"
        )


def check_config(workdir: pathlib.Path, spec: RunSpec) -> None:
    """Raises ValueError if the manifest is damaged, or a changed setting is refused."""
    if content := _read(workdir / "manifest.json"):
        before = content["identity"]
        _refuse(workdir, differences(before, {**before, "config": _config(spec)}))


def check_checkpoints(workdir: pathlib.Path) -> None:
    """Raises ValueError if metrics.jsonl names a newer checkpoint than there is.

    Otherwise the run would resume from an older one and drop the later metrics. A
    checkpoint that was renamed to `STEP.damaged` is not an error.
    """
    path, key = workdir / "metrics.jsonl", "checkpoint/step"
    rows = files.read_rows(path, appended=True, fields={key: int | None})
    named = max((row.get(key) or 0 for _, row in rows), default=0)
    folder = workdir / "checkpoints"
    steps = steps_in(folder)
    newest = max(steps, default=0)
    if newest < named and not (folder / f"{named}{DAMAGED}").exists():
        there = f"the newest is of step {newest}" if steps else "there is none"
        raise ValueError(
            f"{folder}: {path.name} refers to the checkpoint of step {named},"
            f" but {there}. Restore that checkpoint, use another --workdir, or give"
            f" --accept_changes to resume from step {newest} and drop later metrics"
        )


def _hash_problems(sets: Iterable[ProblemSet]) -> str:
    def parts():
        for of_set in sets:
            for p, prompt in zip(of_set.problems, of_set.prompts, strict=True):
                meta = json.dumps(dict(p.meta), sort_keys=True, default=repr)
                yield repr((p.id, p.problem, p.answers, p.source, p.level, meta))
                yield prompt.tobytes().hex()

    return _hash(parts())


def _refuse(workdir: pathlib.Path, changes: Iterable[Change]) -> None:
    if refused := [str(change) for change in changes if change.refused]:
        raise ValueError(
            f"{workdir}: holds another run: {'; '.join(refused)}; give"
            " --accept_changes to resume with these changes, or use another --workdir"
        )


def _read(path: pathlib.Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    with files.damaged(path, "delete it, then resume with --accept_changes"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(part, dict) for part in content["identity"].values()):
            raise TypeError("identity: a section is not an object")
        if not all(isinstance(row["after"], int) for row in content["history"]):
            raise TypeError("history: an entry of `after` is not a whole number")
        return content


def _config(spec: RunSpec) -> dict[str, Any]:
    return json.loads(schema.config_json(spec.config))


def _hash(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _short(value: Any) -> str:
    if isinstance(value, str) and len(value) == 64:  # a hash
        return value[:12]
    text = "none" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
