"""Reads and writes the folder of an evaluation.

DIR/conditions.json     model, benchmarks and conditions of sampling
DIR/problems/           problems of each benchmark
DIR/completions.jsonl   one row per completion, written when it is finished
DIR/verdicts.jsonl      one row per completion: extracted answer, correct or not
"""

import dataclasses
import json
import math
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from configs.schema import differences, flatten
from rl import files
from rl.evaluate import SampledCompletion, Scored
from rl.reward.rewards import VERIFIER, parse

COMPLETIONS = "completions.jsonl"
AUDIT = "audit"  # subfolder with the completions of an audit
_VERDICT = {"benchmark": str, "id": str, "correct": bool, "cluster": str | None}
# completions of one benchmark by problem id and number of the sample
Completions = dict[tuple[str, int], SampledCompletion]


def record_conditions(folder: pathlib.Path, conditions: Mapping[str, Any]) -> None:
    """Writes conditions.json, or adds new benchmarks to an existing file.

    Raises ValueError if the existing file has other conditions.
    """
    wanted = json.loads(json.dumps(conditions))
    if stored := read_conditions(folder):
        wanted["benchmarks"] = stored["benchmarks"] | wanted["benchmarks"]
        for key, old, new in differences(stored, wanted):
            if not (key.startswith("benchmarks.") and old is None):
                raise ValueError(
                    f"{folder}: was started with {key}={old!r}, not {new!r}; choose "
                    "another --out, or delete the folder"
                )
    files.replace_json(folder / "conditions.json", wanted)


def read_conditions(folder: pathlib.Path) -> dict[str, Any]:
    path = folder / "conditions.json"
    return files.read_json(path) if path.exists() else {}


def problems_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the path of the evaluation's copy of a benchmark's problems."""
    # The name may come from an untrusted file; the path must not leave the folder.
    if not name or pathlib.PurePath(name).name != name:
        raise ValueError(
            f"{folder}: benchmark {name!r}: must be a plain file name; correct it in"
            " --benchmarks or completions.jsonl"
        )
    return folder / "problems" / f"{name}.jsonl"


def read_completions(folder: pathlib.Path) -> dict[str, Completions]:
    """Returns the stored completions by benchmark; empty if there are none.

    A last row that an interrupted process left incomplete is ignored.
    """
    found: dict[str, Completions] = {}
    hints = typing.get_type_hints(SampledCompletion)
    for where, row in files.read_rows(
        folder / COMPLETIONS,
        appended=True,
        fields={"benchmark": str, **hints},
        advice="remove the row to sample it again",
    ):
        drawn = SampledCompletion(**{n: row[n] for n in hints if n in row})
        of_benchmark = found.setdefault(row["benchmark"], {})
        if (drawn.id, drawn.sample) in of_benchmark:
            raise ValueError(
                f"{where}: a second row for {row['benchmark']} {drawn.id} sample"
                f" {drawn.sample}; delete one of them"
            )
        of_benchmark[drawn.id, drawn.sample] = drawn
    return found


def judging_reward(given: str | None, recorded_in: pathlib.Path, *keys: str) -> str:
    """Returns `given`, the reward formula of the command line, or else the verifier.

    Raises ValueError if `given` is empty and the JSON file `recorded_in` names another
    reward at one of the dotted `keys`: a file must not choose which code runs.
    """
    content: dict[str, Any] = {}
    if recorded_in.is_file():
        content = flatten(files.read_json(recorded_in))
    recorded = next(filter(None, map(content.get, keys)), VERIFIER)
    if given or recorded == VERIFIER:
        return given or VERIFIER
    raise ValueError(
        f"{recorded_in}: the reward {recorded!r} is imported only if the command names"
        f" it: give --reward '{recorded}', or --reward {VERIFIER}"
    )


def write_verdicts(
    folder: pathlib.Path, scored: Mapping[str, Sequence[Scored]]
) -> None:
    """Writes verdicts.jsonl."""
    rows = []
    for benchmark, of_benchmark in scored.items():
        for s in of_benchmark:
            row: dict[str, Any] = {"benchmark": benchmark, "id": s.id}
            row |= {"sample": s.drawn.sample, "answer": s.answer}
            row |= {"correct": s.correct, "rule": s.verdict.rule}
            if s.graded:
                row["reward"] = None if math.isnan(s.reward) else s.reward
                row["components"] = dict(s.components)
            if (template := s.problem.meta.get("template")) is not None:
                row["cluster"] = str(template)
            rows.append(row)
    files.replace_rows(folder / "verdicts.jsonl", rows)


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluation:
    """Holds the verdicts and conditions of an evaluation."""

    folder: pathlib.Path
    conditions: Mapping[str, Any]  # see `read_conditions`
    # Decides correctness: the reward's first term and, if used, the verifier's version;
    # empty if not known.
    judged: Mapping[str, Any]
    # whether each completion is correct, by benchmark and problem id
    correct: Mapping[str, Mapping[str, Sequence[bool]]]
    # template by benchmark and problem id; problems without one are missing
    clusters: Mapping[str, Mapping[str, str]]


def read_evaluation(folder: pathlib.Path) -> Evaluation:
    path = folder / "verdicts.jsonl"
    if not path.exists():
        raise FileNotFoundError(
            f"{folder}: no verdicts.jsonl; finish the evaluation, or --rescore it"
        )
    correct: dict[str, dict[str, list[bool]]] = {}
    clusters: dict[str, dict[str, str]] = {}
    advice = f"rewrite the file with --rescore {folder}"
    for _, row in files.read_rows(path, fields=_VERDICT, advice=advice):
        name, id = row["benchmark"], row["id"]
        correct.setdefault(name, {}).setdefault(id, []).append(row["correct"])
        if "cluster" in row:
            clusters.setdefault(name, {})[id] = row["cluster"]
    results = folder / "results.json"
    written = files.read_json(results) if results.is_file() else {}
    judged: dict[str, Any] = {}
    if reward := written.get("reward"):
        first = parse(reward, key=f"{results}: reward")[0].name
        judged = {"reward": first}
        if first == VERIFIER:
            judged["verifier"] = written.get("verifier")
    return Evaluation(folder, read_conditions(folder), judged, correct, clusters)
