"""Reads and writes an evaluation's folder.

DIR/conditions.json     model, benchmarks and conditions of sampling
DIR/problems/           of benchmarks that are not among the known ones
DIR/completions.jsonl   one row per completion, written as each ends
DIR/verdicts.jsonl      one row per completion: answer found, right or wrong
"""

import contextlib
import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from configs.schema import differences, flatten
from rl import files
from rl.evaluate import SampledCompletion, Scored
from rl.reward.rewards import VERIFIER


def record_conditions(folder: pathlib.Path, conditions: Mapping[str, Any]) -> None:
    """Writes conditions.json, or checks that a started evaluation has the same.

    Benchmarks may be added later; any other difference would mix two evaluations.

    Raises:
      ValueError: naming the first key that differs, with both values.
    """
    wanted = json.loads(json.dumps(conditions))
    if stored := read_conditions(folder):
        wanted["benchmarks"] = stored["benchmarks"] | wanted["benchmarks"]
        for key, old, new in differences(stored, wanted):
            if not (key.startswith("benchmarks.") and old is None):
                raise ValueError(
                    f"{folder} was begun with {key}={old!r}, now {new!r}: choose "
                    "another --out, or delete it"
                )
    files.replace_json(folder / "conditions.json", wanted)


def read_conditions(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the conditions of an evaluation, empty if none were recorded."""
    path = folder / "conditions.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def problems_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Returns where the problems of a benchmark that is not a known one are stored.

    Raises:
      ValueError: the name is not a file's, and would lead out of the folder.
    """
    if not name or pathlib.PurePath(name).name != name:
        raise ValueError(f"{folder}: {name!r} is not the name of a benchmark")
    return folder / "problems" / f"{name}.jsonl"


@contextlib.contextmanager
def appended(
    folder: pathlib.Path,
) -> Iterator[Callable[[str, SampledCompletion], None]]:
    """Yields a function that stores one more completion of a benchmark, at once."""
    with contextlib.closing(files.Rows(folder / "completions.jsonl")) as rows:
        yield lambda benchmark, drawn: rows.write(
            {"benchmark": benchmark} | dataclasses.asdict(drawn)
        )


def read_completions(folder: pathlib.Path) -> dict[str, list[SampledCompletion]]:
    """Returns completions by benchmark. A last row cut short by a kill is ignored.

    Raises:
      ValueError: naming the row that is malformed or there twice.
    """
    found: dict[str, dict[tuple[str, int], SampledCompletion]] = {}
    for where, row in files.read_rows(folder / "completions.jsonl", appended=True):
        if missing := {"benchmark", "id", "sample", "completion"} - row.keys():
            raise ValueError(f"{where}: no field {min(missing)!r}")
        if not isinstance(row["completion"], str):
            raise ValueError(f"{where}: completion must be a text")
        names = [field.name for field in dataclasses.fields(SampledCompletion)]
        drawn = SampledCompletion(**{n: row[n] for n in names if n in row})
        of_benchmark = found.setdefault(row["benchmark"], {})
        if (drawn.id, drawn.sample) in of_benchmark:
            raise ValueError(
                f"{where}: a second row for {row['benchmark']} {drawn.id} sample"
                f" {drawn.sample}"
            )
        of_benchmark[drawn.id, drawn.sample] = drawn
    return {name: list(drawn.values()) for name, drawn in found.items()}


def judging_reward(asked: str | None, recorded_in: pathlib.Path, *keys: str) -> str:
    """Returns the formula of the reward that judges.

    That is `asked`, of the command line, else what the JSON file `recorded_in`, if it
    exists, has at the first of `keys` that is set. What a file records is data: a
    function that it names is not imported, unless the command line names it too.

    Raises:
      ValueError: nothing was asked for, and another than the verifier is recorded.
    """
    content: dict[str, Any] = {}
    if recorded_in.is_file():
        content = flatten(json.loads(recorded_in.read_text("utf-8")))
    recorded = next(filter(None, map(content.get, keys)), VERIFIER)
    if asked or recorded == VERIFIER:
        return asked or VERIFIER
    raise ValueError(
        f"{recorded_in}: judged by {recorded!r}, which is not imported because a file"
        f" says so: give --reward '{recorded}', or --reward {VERIFIER}"
    )


def write_verdicts(
    folder: pathlib.Path,
    scored: Mapping[str, Sequence[Scored]],
    clusters: Mapping[str, Mapping[str, str] | None] | None = None,
) -> None:
    """Replaces verdicts.jsonl as a whole.

    `scored` are completions by benchmark, `clusters` the templates of their problems
    (`rl.evaluate.templates_of`).
    """
    rows = []
    for benchmark, of_benchmark in scored.items():
        templates = (clusters or {}).get(benchmark)
        for s in of_benchmark:
            row: dict[str, Any] = {"benchmark": benchmark, "id": s.id}
            row |= {"sample": s.drawn.sample, "answer": s.answer}
            row |= {"correct": s.correct, "rule": s.verdict.rule}
            if s.graded:
                row["reward"] = None if math.isnan(s.reward) else s.reward
                row["components"] = dict(s.components)
            if templates:
                row["cluster"] = templates[s.id]
            rows.append(row)
    files.replace_rows(folder / "verdicts.jsonl", rows)


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluation:
    """Holds a judged folder.

    Attributes:
      folder: of the evaluation.
      conditions: see `read_conditions`.
      correct: by benchmark and problem id, which of its completions are right.
      clusters: by benchmark, the template of each problem that has one.
    """

    folder: pathlib.Path
    conditions: Mapping[str, Any]
    correct: Mapping[str, Mapping[str, Sequence[bool]]]
    clusters: Mapping[str, Mapping[str, str]]


def read_evaluation(folder: pathlib.Path) -> Evaluation:
    """Reads a judged folder.

    Raises:
      FileNotFoundError: the evaluation was never judged to its end.
      ValueError: a row that the present version would not write.
    """
    path = folder / "verdicts.jsonl"
    if not path.exists():
        raise FileNotFoundError(
            f"{folder}: no verdicts.jsonl; finish the evaluation, or --rescore it"
        )
    correct: dict[str, dict[str, list[bool]]] = {}
    clusters: dict[str, dict[str, str]] = {}
    for where, row in files.read_rows(path):
        try:
            name, id = row["benchmark"], row["id"]
            correct.setdefault(name, {}).setdefault(id, []).append(row["correct"])
            if "cluster" in row:
                clusters.setdefault(name, {})[id] = row["cluster"]
        except KeyError as error:
            raise ValueError(
                f"{where}: no field {error}; write it again by --rescore {folder}"
            ) from None
    return Evaluation(folder, read_conditions(folder), correct, clusters)
