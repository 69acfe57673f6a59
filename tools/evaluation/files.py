"""An evaluation's folder: what is in it, and how it is written and read back.

DIR/conditions.json     what was asked of which model, and how
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
from rl.evaluate import SampledCompletion, Scored, by_problem
from rl.problems import reading
from rl.reward.rewards import VERIFIER
from rl.types import Problem


def record_conditions(folder: pathlib.Path, conditions: Mapping[str, Any]) -> None:
    """Writes conditions.json, or checks that a started evaluation has the same.

    Benchmarks may join later; whatever else differs would mix two evaluations.

    Raises:
      ValueError: naming the first key that differs, with both values.
    """
    wanted = json.loads(json.dumps(conditions))
    if kept := read_conditions(folder):
        wanted["benchmarks"] = kept["benchmarks"] | wanted["benchmarks"]
        for key, old, new in differences(kept, wanted):
            if not (key.startswith("benchmarks.") and old is None):
                raise ValueError(
                    f"{folder} was begun with {key}={old!r}, now {new!r}: choose "
                    "another --out, or delete it"
                )
    files.replace_json(folder / "conditions.json", wanted)


def read_conditions(folder: pathlib.Path) -> dict[str, Any]:
    """The conditions of an evaluation, empty where none were recorded."""
    path = folder / "conditions.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def problems_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Where the problems of a benchmark that is not a known one are kept.

    Raises:
      ValueError: the name is no file's, and would lead out of the folder.
    """
    if not name or pathlib.PurePath(name).name != name:
        raise ValueError(f"{folder}: {name!r} is no name of a benchmark")
    return folder / "problems" / f"{name}.jsonl"


def write_problems(
    folder: pathlib.Path, name: str, problems: Sequence[Problem]
) -> None:
    """Keeps the problems, so that the folder can be judged wherever it goes."""
    path = problems_file(folder, name)
    path.parent.mkdir(exist_ok=True)
    reading.write_problems(path, problems)


@contextlib.contextmanager
def appended(
    folder: pathlib.Path,
) -> Iterator[Callable[[str, SampledCompletion], None]]:
    """Gives a function that keeps one more completion of a benchmark, at once."""
    with contextlib.closing(files.Rows(folder / "completions.jsonl")) as rows:
        yield lambda benchmark, drawn: rows.write(
            {"benchmark": benchmark} | dataclasses.asdict(drawn)
        )


def read_completions(folder: pathlib.Path) -> dict[str, list[SampledCompletion]]:
    """Kept completions by benchmark. A last row cut short by a kill does not count.

    Raises:
      ValueError: naming the row that is malformed or there twice.
    """
    kept: dict[str, dict[tuple[str, int], SampledCompletion]] = {}
    rows = files.read_rows(folder / "completions.jsonl", appended=True)
    for where, row in rows:
        try:
            drawn = SampledCompletion(
                id=row["id"],
                sample=row["sample"],
                completion=row["completion"],
                tokens=row.get("tokens"),
                finish_reason=row.get("finish_reason"),
                repetitive=row.get("repetitive"),
            )
            benchmark = row["benchmark"]
        except KeyError as error:
            raise ValueError(f"{where}: no field {error}") from None
        if not isinstance(drawn.completion, str):
            raise ValueError(f"{where}: completion must be a text")
        of_benchmark = kept.setdefault(benchmark, {})
        if (drawn.id, drawn.sample) in of_benchmark:
            raise ValueError(
                f"{where}: {benchmark} {drawn.id} sample {drawn.sample} is there twice"
            )
        of_benchmark[drawn.id, drawn.sample] = drawn
    return {name: list(drawn.values()) for name, drawn in kept.items()}


def judging_reward(asked: str | None, recorded_in: pathlib.Path, *keys: str) -> str:
    """The formula of the reward that judges.

    What a file records is data: a function that it names is not imported, unless the
    command line names it too.

    Args:
      asked: on the command line, if anything was.
      recorded_in: a JSON file, which need not be there.
      keys: where in it the formula stands, `section.name`; the first that says one.

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


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """A row of verdicts.jsonl.

    Attributes:
      correct: whether the completion is right.
      answer: found in it, if any.
      kind: number of the class of equivalent answers that it belongs to; None where
        there is no answer. Numbers mean something within a benchmark's folder only.
      cluster: of its problem, if any; see `rl.evaluate.templates_of`.
    """

    correct: bool
    answer: str | None
    kind: int | None
    cluster: str | None = None


def write_verdicts(
    folder: pathlib.Path,
    scored: Mapping[str, Sequence[Scored]],
    classes: Mapping[str, Mapping[str, Sequence[int | None]]],
    clusters: Mapping[str, Mapping[str, str] | None] | None = None,
) -> None:
    """Writes verdicts.jsonl whole: a reader never sees half of a judging.

    Args:
      folder: of the evaluation.
      scored: completions by benchmark.
      classes: of their answers, by benchmark and problem id; see `answer_classes`.
      clusters: of the problems, likewise; see `rl.evaluate.templates_of`.
    """
    rows = [
        {
            "benchmark": benchmark,
            "id": s.drawn.id,
            "sample": s.drawn.sample,
            "answer": s.answer,
            "class": kind,
            "correct": s.correct,
            "rule": s.verdict.rule,
        }
        | (_grades(s) if s.graded else {})
        | ({"cluster": of_benchmark_clusters[id]} if of_benchmark_clusters else {})
        for benchmark, of_benchmark in scored.items()
        for of_benchmark_clusters in [(clusters or {}).get(benchmark)]
        for id, group in by_problem(of_benchmark).items()
        for s, kind in zip(group, classes[benchmark][id], strict=True)
    ]
    files.replace_rows(folder / "verdicts.jsonl", rows)


def _grades(scored: Scored) -> dict[str, Any]:
    reward = None if math.isnan(scored.reward) else scored.reward
    return {"reward": reward, "components": dict(scored.components)}


def read_verdicts(folder: pathlib.Path) -> dict[str, dict[str, list[Judged]]]:
    """Verdicts by benchmark and problem id, in the order of samples.

    Raises:
      FileNotFoundError: the evaluation was never judged to its end.
      ValueError: a row that the present version would not write.
    """
    path = folder / "verdicts.jsonl"
    if not path.exists():
        raise FileNotFoundError(
            f"{folder}: no verdicts.jsonl; finish the evaluation, or --rescore it"
        )
    verdicts: dict[str, dict[str, dict[int, Judged]]] = {}
    for where, row in files.read_rows(path):
        try:
            judged = Judged(
                row["correct"], row["answer"], row["class"], row.get("cluster")
            )
            of_benchmark = verdicts.setdefault(row["benchmark"], {})
            of_benchmark.setdefault(row["id"], {})[row["sample"]] = judged
        except KeyError as error:
            raise ValueError(f"{where}: no field {error}; --rescore {folder}") from None
    return {
        benchmark: {
            id: [by_sample[sample] for sample in sorted(by_sample)]
            for id, by_sample in of_benchmark.items()
        }
        for benchmark, of_benchmark in verdicts.items()
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A judged folder as it is compared.

    Attributes:
      folder: where it lies.
      conditions: see `read_conditions`.
      verdicts: see `read_verdicts`.
    """

    folder: pathlib.Path
    conditions: Mapping[str, Any]
    verdicts: Mapping[str, Mapping[str, Sequence[Judged]]]


def read_evaluation(folder: pathlib.Path) -> Evaluation:
    """Reads a judged folder; see `read_verdicts` for errors."""
    return Evaluation(
        folder=folder,
        conditions=read_conditions(folder),
        verdicts=read_verdicts(folder),
    )
