"""What a run does: the only reader of configs/curate.py."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rl.types import Problem
from tools.curation.row import Seen
from tools.curation.screen import Screen
from tools.curation.sources import Source
from tools.evaluation.benchmarks import is_another_copy, load_benchmark

_NEAR = (
    "threshold",
    "same_answer_threshold",
    "conflict_threshold",
    "contamination_threshold",
)
_OWN = ("sources", "evaluation", "data_dir")
_SOURCE = ("path", "name", "fields", "level_source")
_CHOICES = {"conflicts": ("majority", "drop"), "unlevelled": ("keep", "drop")}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does; equal plans over equal files give equal bytes.

    Attributes:
      sources: where rows come from; earlier ones win among duplicates.
      evaluation: name -> problem of those that must not be trained on.
      screen: keyword arguments of `Screen`.
      near: thresholds of near duplicates: `threshold`, `same_answer_threshold`,
        `conflict_threshold`, and `contamination_threshold` against evaluation.
      ngram: words in a run that contaminates.
      ngram_max_problems: a run found in more problems than this is boilerplate.
      conflicts: "majority" keeps the answer most copies give, "drop" drops them all.
      levels: the scale that levels are kept on; "auto" takes the most frequent,
        "none" keeps no level.
      common_rows: rows that another scale must have in common with that one for its
        rows to get levels on it; 0 takes none over.
      unlevelled: "keep" or "drop" rows without a level on that scale.
      answer_timeout: seconds that one answer may take to verify.
      workers: processes.
    """

    sources: Sequence[Source]
    evaluation: Mapping[str, Problem]
    screen: Mapping[str, Any]
    near: Mapping[str, float]
    ngram: int
    ngram_max_problems: int
    conflicts: str
    levels: str
    common_rows: int
    unlevelled: str
    answer_timeout: float
    workers: int

    @property
    def evaluation_texts(self) -> dict[str, str]:
        """Name -> text."""
        return {name: problem.problem for name, problem in self.evaluation.items()}

    def seen(self, name: str) -> Seen:
        """What a reader sees of an evaluation problem."""
        problem = self.evaluation[name]
        return Seen(name, problem.problem, " or ".join(problem.answers))


def make_plan(
    config: Mapping[str, Any],
    *,
    inputs: Sequence[str] | None = None,
    fields: Mapping[str, str] | None = None,
) -> Plan:
    """Checks a configuration and reads the evaluation problems.

    Args:
      config: the keys of configs/curate.py.
      inputs: files that replace its sources.
      fields: our field -> its path in the rows of `inputs`; none: by their format.

    Raises:
      ValueError: a source is missing or of an unknown kind, a key is unknown or
        missing, or a value out of range.
    """
    options = {key: config[key] for key in config}
    names = [name for name in Plan.__dataclass_fields__ if name not in _OWN]
    _check_keys("config", options, [*names, *_OWN])
    _check_keys("config.screen", options["screen"], list(Screen.__dataclass_fields__))
    _check_keys("config.near", options["near"], _NEAR)
    for name, value in options["near"].items():
        if not 0 < value <= 1:
            raise ValueError(f"config.near.{name}={value}: must lie in (0, 1]")
    if options["near"]["same_answer_threshold"] > options["near"]["threshold"]:
        raise ValueError("config.near.same_answer_threshold: must not exceed threshold")
    for name, allowed in _CHOICES.items():
        if options[name] not in allowed:
            raise ValueError(
                f"config.{name}={options[name]!r}: must be {' or '.join(allowed)}"
            )
    for name in ("ngram", "ngram_max_problems", "workers", "answer_timeout"):
        if not options[name] > 0:
            raise ValueError(f"config.{name}={options[name]}: must be positive")
    if options["common_rows"] < 0:
        raise ValueError(
            f"config.common_rows={options['common_rows']}: must not be < 0"
        )
    sources = (
        [{"path": path, "fields": fields or {}} for path in inputs]
        if inputs
        else list(options["sources"])
    )
    for i, source in enumerate(sources):
        _check_keys(f"config.sources[{i}]", source, _SOURCE, required=("path",))
    data_dir = pathlib.Path(os.path.expandvars(options["data_dir"]))
    evaluation = {
        f"{pathlib.PurePath(spec).stem}/{problem.id}": problem
        for spec in options["evaluation"]
        for problem in _evaluation(os.path.expandvars(spec), data_dir)
    }
    return Plan(
        sources=tuple(Source(**source) for source in sources),
        evaluation=evaluation,
        screen=dict(options["screen"]),
        near=dict(options["near"]),
        **{name: options[name] for name in names if name not in ("screen", "near")},
    )


def _evaluation(spec: str, data_dir: pathlib.Path) -> list[Problem]:
    """What is screened against; a name means what that set is known to hold."""
    problems = load_benchmark(spec, data_dir)
    if is_another_copy(spec, problems):
        raise ValueError(
            f"config.evaluation: {spec} of {data_dir} has other problems or answers"
            " than the set of that name; to screen against it even so, give its path"
        )
    return problems


def _check_keys(
    where: str,
    given: Mapping[str, Any],
    known: Sequence[str],
    required: Sequence[str] | None = None,
) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{where}.{key}: unknown key (known: {', '.join(known)})")
    for key in known if required is None else required:
        if key not in given:
            raise ValueError(f"{where}.{key}: missing")
