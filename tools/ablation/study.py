"""Lists the runs of an ablation, with their configs, folders and summaries."""

import dataclasses
import hashlib
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from configs.ablation import SEPARATOR, Ablation, find_ablation
from configs.reading import read_config, run_file
from configs.schema import config_json
from rl.files import read_json


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Represents the run of one arm with one seed.

    The workdir's name is a hash of the config, so runs with equal configs share one.
    """

    arm: str
    seed: int
    config: ConfigDict
    arguments: tuple[str, ...]  # the run's command after `python -m`
    workdir: pathlib.Path

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    @property
    def log(self) -> pathlib.Path:
        return self.workdir.with_suffix(".log")

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """The contents of the run's summary.json; None until the run has ended."""
        path = self.workdir / "summary.json"
        return read_json(path) if path.is_file() else None

    @property
    def last_line(self) -> str:
        """The last line of the run's output; empty before the run has started."""
        if not self.log.is_file():
            return ""
        text = self.log.read_text(encoding="utf-8", errors="replace").rstrip()
        return text.rpartition("\n")[2]

    def command(self) -> str:
        return shlex.join(["python", "-m", *self.arguments])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Represents an ablation of a base config, with its runs."""

    name: str
    base: str  # the config that the arms change
    overrides: Mapping[str, Any]  # values that every run sets, by dotted key
    ablation: Ablation  # the arms and the reference
    seeds: tuple[int, ...]  # seeds of each arm
    runs: tuple[Run, ...]  # all arms with the first seed, then with the second, ...

    @property
    def pending(self) -> tuple[Run, ...]:
        """The runs that have not ended; of runs with equal configs, the first."""
        distinct = {run.workdir: run for run in reversed(self.runs)}.values()
        return tuple(run for run in distinct if run.summary is None)[::-1]


def make_study(
    name: str,
    *,
    workdir: pathlib.Path,
    overrides: Mapping[str, Any],
    seeds: Sequence[int] = (),
) -> Study:
    """Reads an ablation and lists its runs, whose folders are in `workdir/runs`.

    Args:
      name: `FILE.py:NAME`, or `FILE.py:NAME@BASE` for another base config.
      overrides: values for all runs, by dotted key; they replace the arm's values.
      seeds: the seeds of each arm; empty means the seeds of the ablation.

    Raises:
      ValueError: `name` is not an ablation or contains an arm, a seed occurs twice, or
        `overrides` sets the seed or all keys of an arm.
      UnreadableConfig: the file, the base config or an arm is not valid.
    """
    file, _, text = name.partition(":")
    which, _, other = text.partition(SEPARATOR)
    ablations = run_file(file).get("ABLATIONS")
    if not isinstance(ablations, dict):
        raise ValueError(f"{file}: defines no ABLATIONS; see configs/ablation.py")
    ablation = find_ablation(ablations, which)
    if "seed" in overrides:
        raise ValueError(f"config.seed={overrides['seed']}: use --seeds instead")
    for arm, changes in ablation.arms.items():
        if changes and changes.keys() <= overrides.keys():
            key = next(iter(changes))
            raise ValueError(
                f"config.{key}={overrides[key]!r}: replaces all changes of the arm"
                f" {arm!r}; remove this flag"
            )
    seeds = tuple(seeds or ablation.seeds)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={list(seeds)}: give at least one, and none twice")
    runs = []
    for seed in seeds:
        for arm in ablation.arms:
            source = f"{file}:{which}:{arm}" + (f"{SEPARATOR}{other}" if other else "")
            config, changes = read_config(source), {**overrides, "seed": seed}
            config.update_from_flattened_dict(changes)
            digest = hashlib.sha256(config_json(config).encode()).hexdigest()
            folder = workdir / "runs" / digest[:12]
            flags = [f"--config.{key}={value}" for key, value in changes.items()]
            words = ("rl.train", f"--config={source}", *flags, f"--workdir={folder}")
            run = Run(
                arm=arm, seed=seed, config=config, arguments=words, workdir=folder
            )
            runs.append(run)
    return Study(
        name=which,
        base=other or ablation.base,
        overrides=overrides,
        ablation=ablation,
        seeds=seeds,
        runs=tuple(runs),
    )
