"""Defines the plan of a curation run, and makes it from configs/curate.py."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from configs.schema import Count, Range, Share, call, parse
from rl.problems.types import Problem
from tools.curation.evidence import Readings, load_readings
from tools.curation.screen import Screen
from tools.curation.sources import Source
from tools.evaluation.benchmarks import is_another_copy, load_benchmark

_Similarity = Annotated[float, Range(0, 1, open=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Near:
    """Holds thresholds of the Jaccard similarity, described in configs/curate.py."""

    threshold: _Similarity
    same_answer_threshold: _Similarity
    conflict_threshold: _Similarity
    contamination_threshold: _Similarity

    def __post_init__(self) -> None:
        if self.same_answer_threshold > self.threshold:
            raise ValueError(
                f"config.near.same_answer_threshold={self.same_answer_threshold}: must"
                f" be at most config.near.threshold={self.threshold}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Configures a curation run; the keys are described in configs/curate.py."""

    sources: Sequence[Source]
    evaluation: Mapping[str, Problem]  # by id
    screen: Screen
    near: Near
    evidence: Literal["required", "preferred", "off"]
    min_evidence: Share
    readings: Readings
    workers: Count


def make_plan(
    config: Mapping[str, Any],
    *,
    inputs: Sequence[str] | None = None,
    fields: Mapping[str, str] | None = None,
) -> Plan:
    """Makes a plan from a config, and reads the files that the config names.

    The files `inputs`, if any, replace the sources of the config. For these files,
    `fields` has paths of columns by field of `Row`; see `formats`.

    Raises:
      ValueError: a key, value or source is not valid, or a benchmark is not the
        published one.
      OSError: a file cannot be read, or a known benchmark is missing.
    """
    options = {**config}
    if inputs:
        options["sources"] = [{"path": p, "fields": fields or {}} for p in inputs]
    return call(_plan, "", options)


def _plan(
    sources: Sequence[Any] = (),
    evaluation: Sequence[str] = (),
    data_dir: str = "",
    readings: str = "",
    **others: Any,
) -> Plan:
    options = {
        "sources": [call(Source, f"sources[{i}]", s) for i, s in enumerate(sources)],
        "evaluation": _evaluation(evaluation, data_dir),
        "readings": load_readings(os.path.expandvars(readings)),
    }
    return parse(Plan, others | options)


def _evaluation(names: Sequence[str], data_dir: str) -> dict[str, Problem]:
    """Returns the problems of all evaluation sets by the id "SET/ID"."""
    folder = pathlib.Path(os.path.expandvars(data_dir))
    found: dict[str, Problem] = {}
    for name in map(os.path.expandvars, names):
        problems = load_benchmark(name, folder)
        if is_another_copy(name, problems):
            raise ValueError(
                f"config.evaluation: {name} in {folder} differs from the published set;"
                " download that with tools.fetch, or, to use this copy, give the path"
                " of its .jsonl file"
            )
        for problem in problems:
            id = f"{pathlib.PurePath(name).stem}/{problem.id}"
            found[id] = dataclasses.replace(problem, id=id)
    return found
