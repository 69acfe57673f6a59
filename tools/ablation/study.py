"""Lists the runs of an ablation: their configs, folders and summaries."""

import dataclasses
import hashlib
import json
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from configs.ablation import SEPARATOR, Ablation, check_seeds
from configs.reading import expand_home, read_config, run_file
from configs.schema import config_json, differences


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Describes one arm with one seed.

    The workdir is named by a hash of the config, so that arms which are the same run,
    of one ablation or of several, share it.
    """

    arm: str
    seed: int
    config: ConfigDict
    arguments: tuple[str, ...]  # of `rl.train`, that give this config
    workdir: pathlib.Path

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    @property
    def log(self) -> pathlib.Path:
        """Returns the file of what the run prints."""
        return self.workdir.with_name(f"{self.workdir.name}.log")

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """Returns the run's summary.json; None until it has ended.

        Raises:
          ValueError: the workdir holds a run of another config.
        """
        path = self.workdir / "summary.json"
        if not path.is_file():
            return None
        found = json.loads((self.workdir / "config.json").read_text(encoding="utf-8"))
        config = self.config.copy_and_resolve_references()
        expand_home(config)
        expected = json.loads(config_json(config))
        for key, its, ours in differences(found, expected):
            raise ValueError(
                f"{self.workdir} holds another run: config.{key}={its!r}, not {ours!r}"
            )
        return json.loads(path.read_text(encoding="utf-8"))

    @property
    def last_line(self) -> str:
        """Returns the last line of its output; empty before it has begun."""
        if not self.log.is_file():
            return ""
        text = self.log.read_text(encoding="utf-8", errors="replace").rstrip()
        return text.rpartition("\n")[2]

    def command(self) -> str:
        """Returns the run as a shell command."""
        words = ["python", "-m", "rl.train", *self.arguments]
        return shlex.join([*words, f"--workdir={self.workdir}"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Describes an ablation on a base, with its runs."""

    name: str  # of its file
    question: str  # the file's docstring
    base: str  # the config that the arms change
    overrides: Mapping[str, Any]  # of every run, by dotted keys
    ablation: Ablation  # the arms and the reference
    seeds: tuple[int, ...]  # of each arm
    runs: tuple[Run, ...]  # seed by seed, so that all arms have one before any has two

    @property
    def distinct(self) -> tuple[Run, ...]:
        """Returns the runs, those of one config once."""
        return tuple({run.workdir: run for run in reversed(self.runs)}.values())[::-1]

    @property
    def pending(self) -> tuple[Run, ...]:
        """Returns distinct runs that have not ended."""
        return tuple(run for run in self.distinct if run.summary is None)


def make_study(
    name: str,
    *,
    workdir: pathlib.Path,
    overrides: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (),
) -> Study:
    """Collects the runs of an ablation, which are in WORKDIR/runs.

    `name` is its file; `FILE.py:@BASE` takes another base than the file's own. The
    overrides are set in every run, after the arm's own; `seeds` replace the ablation's.

    Raises:
      ValueError, UnreadableConfig: one line that names the file or arm.
    """
    file, _, text = name.partition(":")
    chosen, _, other = text.partition(SEPARATOR)
    if chosen:
        raise ValueError(f"{name}: names an arm; all are run")
    module = run_file(file)
    ablation = module.get("ABLATION")
    if not isinstance(ablation, Ablation):
        raise ValueError(f"{file}: defines no ABLATION, see configs.ablation")
    overrides = dict(overrides or {})
    if "seed" in overrides:
        raise ValueError(f"config.seed={overrides['seed']}: give --seeds")
    seeds = tuple(seeds or ablation.seeds)
    check_seeds(seeds)
    suffix = f"{SEPARATOR}{other}" if other else ""
    changes = [f"--config.{key}={value}" for key, value in overrides.items()]
    runs = []
    for seed in seeds:
        for arm in ablation.arms:
            config = read_config(f"{file}:{arm}{suffix}")
            config.update_from_flattened_dict({**overrides, "seed": seed})
            runs.append(
                Run(
                    arm=arm,
                    seed=seed,
                    config=config,
                    arguments=(
                        f"--config={file}:{arm}{suffix}",
                        *changes,
                        f"--config.seed={seed}",
                    ),
                    workdir=workdir / "runs" / _digest(config),
                )
            )
    return Study(
        name=pathlib.Path(file).stem,
        question=(module.get("__doc__") or "").strip(),
        base=other or ablation.base,
        overrides=overrides,
        ablation=ablation,
        seeds=seeds,
        runs=tuple(runs),
    )


def _digest(config: ConfigDict) -> str:
    return hashlib.sha256(config_json(config).encode()).hexdigest()[:12]
