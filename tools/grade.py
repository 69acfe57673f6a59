"""Measures how often a model solves each problem, and turns solve rates into levels.

    python -m tools.grade --model HFDIR --input problems.jsonl --out DIR \\
        --samples 16 --levels percentile
    python -m tools.grade --input problems.jsonl --levels percentile --out DIR

The second form needs no model: it computes levels from the `solve_rate` of the rows.
The command writes summary.json and graded.jsonl into DIR. graded.jsonl has the input
rows that have an answer. `--levels percentile` sets their `level`, and the first form
adds `solve_rate`, `solve_interval` and `graded`. The first form also writes
completions.jsonl and verdicts.jsonl, in the format of tools.evaluate. The same command
resumes an interrupted run and judges all stored completions again. tools.curate reads
`graded` as evidence that gold answers are right.
"""

# ruff: noqa: E402

import signal

if __name__ == "__main__":
    # Ctrl-C during the imports below must not print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import collections
import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from configs.reading import user_path
from rl import files
from rl.evaluate import SampledCompletion, Scored, by_problem, score
from rl.processes import stopping
from rl.reward.verifier import verifier_reward
from rl.statistics import wilson_interval
from rl.types import Problem
from rl.verifier import VERSION, VerifierPool
from rollout.cores import usable_cores
from rollout.types import SamplerError
from tools.curation.formats import parse_fields
from tools.curation.levels import percentile_levels
from tools.curation.repair import with_answer
from tools.curation.sources import Source, check_output, read
from tools.evaluation import run, sampler
from tools.evaluation.files import record_conditions, write_verdicts
from tools.evaluation.pretrained import find_pretrained
from tools.evaluation.votes import answer_classes

_NAME = "graded"  # the benchmark name in completions.jsonl and verdicts.jsonl
_CONDITIONS = dataclasses.replace(
    run.QWEN_MATH, samples=16, temperature=1.0, max_tokens=3072, chunk=2048
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Summarizes the completions of a problem."""

    samples: int  # number of completions
    correct: int  # number of correct completions
    unparsable: int  # number of completions without an answer
    truncated: int  # number of completions that reached the token limit
    majority: str | None  # the most frequent answer, None if no answer was found
    agreement: float  # share of the completions that give the majority answer
    against_gold: bool  # whether the majority answer was judged wrong


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    try:
        rows = _rows(args)
        _write(args, rows, _grade(args, rows) if args.model else {})
    except (ValueError, OSError, SamplerError) as error:
        print(f"grade: {error}", file=sys.stderr)
        return stopping.REFUSED
    return 0


def _rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    fields = parse_fields(args.fields)
    sources = [Source(path=path, fields=fields) for path in args.input]
    check_output(sources, args.out / "graded.jsonl")
    rows = [
        row.record()
        for source in sources
        for row in map(with_answer, read(source))
        if row.answers
    ]
    rows = rows[: args.limit]
    if not rows:
        raise ValueError(
            f"--input={','.join(args.input)}: no row with an answer; name the column of"
            " the answers with --fields"
        )
    for row_id, count in collections.Counter(row["id"] for row in rows).items():
        if count > 1:
            raise ValueError(
                f"--input={','.join(args.input)}: id {row_id!r} occurs {count} times;"
                " make ids unique"
            )
    return rows


def _grade(args: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Grade]:
    keys = ("id", "problem", "meta")
    problems = [
        Problem(**{key: row[key] for key in keys}, answers=tuple(row["answers"]))
        for row in rows
    ]
    with files.locked(args.out):
        drawn = sorted(_drawn(args, problems), key=lambda d: (d.id, d.sample))
        with VerifierPool(workers=usable_cores()) as pool:
            scored = score(drawn, problems, verifier_reward(pool.judge))
            classes = answer_classes(scored, pool)
        write_verdicts(args.out, {_NAME: scored})
    return make_grades(scored, classes)


def _drawn(
    args: argparse.Namespace, problems: Sequence[Problem]
) -> list[SampledCompletion]:
    """Samples the completions that `--out` lacks; returns all completions."""
    sampler.prepare(args)
    model = find_pretrained(args.model, args.dtype)
    conditions = sampler.conditions_of(args, _CONDITIONS, model)
    task = run.make_task(args.out, _NAME, problems, model, conditions)
    if run.check_prompts(task, model.config.max_positions):
        longest = max(map(len, task.prompts))
        raise ValueError(
            f"max_tokens={conditions.max_tokens} and a prompt of {longest} tokens"
            f" exceed context={conditions.context}; raise --context or lower"
            " --max_tokens"
        )
    drawing = dataclasses.asdict(conditions) | {
        "model": str(model.folder),
        "checkpoint": run.checkpoint_hash(model.folder),
        "dtype": model.dtype,
        "sampler": args.sampler,
        "problems": len(problems),  # seeds depend on them
    }
    record_conditions(args.out, {"drawing": drawing, "benchmarks": {}})
    context = conditions.context
    run.complete([task], lambda: sampler.open_sampler(args, model, context), model)
    return run.present(task)


def make_grades(
    scored: Sequence[Scored], classes: Mapping[str, Sequence[int | None]]
) -> dict[str, Grade]:
    """Returns grades by problem id; `classes` is the result of `answer_classes`."""
    grades = {}
    for id, group in by_problem(scored).items():
        votes = collections.Counter(kind for kind in classes[id] if kind is not None)
        leader, count = votes.most_common(1)[0] if votes else (None, 0)
        first = group[classes[id].index(leader)] if votes else None
        grades[id] = Grade(
            samples=len(group),
            correct=sum(s.correct for s in group),
            unparsable=sum(s.answer is None for s in group),
            truncated=sum(s.drawn.finish_reason == "length" for s in group),
            majority=first.answer if first else None,
            agreement=count / len(group),
            against_gold=first is not None and first.verdict.correct is False,
        )
    return grades


def add_grades(
    rows: list[dict[str, Any]], grades: Mapping[str, Grade], level_source: str | None
) -> None:
    """Adds `graded`, `solve_rate` and `solve_interval` to the rows with a grade.

    If `level_source` is given, also replaces the levels of all rows by levels computed
    from their solve rates.
    """
    for row in rows:
        if grade := grades.get(row["id"]):
            interval = wilson_interval(grade.correct, grade.samples)
            row["solve_rate"] = grade.correct / grade.samples
            row["solve_interval"] = [round(edge, 6) for edge in interval]
            row["graded"] = dataclasses.asdict(grade)
    if level_source is not None:
        levels = percentile_levels([row.get("solve_rate") for row in rows])
        for row, level in zip(rows, levels, strict=True):
            row["level"] = level
            row["level_source"] = level_source if level is not None else None


def _write(
    args: argparse.Namespace, rows: list[dict[str, Any]], grades: dict[str, Grade]
) -> None:
    add_grades(rows, grades, args.level_source)
    rates = [row["solve_rate"] for row in rows if row["solve_rate"] is not None]
    if args.levels == "percentile":
        if not rates:
            raise ValueError(
                f"--input={','.join(args.input)}: no row has a solve_rate; give --model"
            )
        if not any(row["level"] == 5 for row in rows):
            print(
                f"grade: level 5 is empty: all solve rates ({len(rates)}) are"
                f" {rates[0]:g}; raise --samples or use another --model to find hard"
                " problems",
                file=sys.stderr,
            )
    args.out.mkdir(parents=True, exist_ok=True)
    files.replace_rows(args.out / "graded.jsonl", rows)
    levels = collections.Counter(str(row["level"]) for row in rows)
    every = grades.values()
    summary = {
        "problems": len(rows),
        "graded": len(grades),
        "mean_solve_rate": sum(rates) / len(rates) if rates else None,
        "never_solved": sum(rate == 0 for rate in rates),
        "always_solved": sum(rate == 1 for rate in rates),
        "never_answered": sum(g.unparsable == g.samples for g in every),
        "majority_against_gold": sum(g.against_gold for g in every),
        "unparsable": sum(g.unparsable for g in every),
        "truncated": sum(g.truncated for g in every),
        "completions": sum(g.samples for g in every),
        "verifier": VERSION,
        "levels": dict(sorted(levels.items())),
        "level_source": args.level_source,
    }
    for path in filter(None, (args.out / "summary.json", args.json)):
        files.replace_json(path, summary)
    print(json.dumps(summary, indent=2))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.grade",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = dataclasses.asdict(_CONDITIONS).items()
    text = ", ".join(f"{name} {value}" for name, value in default)
    sampler.add_flags(parser, slots=256, default=text)
    add = parser.add_argument
    text = (
        "comma-separated JSONL, JSON or Parquet files, in any of the formats that"
        " tools/curation/formats.py lists"
    )
    add("--input", type=sampler.comma_separated, required=True, help=text)
    text = "columns of files of other formats: problem=COLUMN,answer=COLUMN.key[0]"
    add("--fields", default="", help=text)
    add("--out", type=user_path, required=True, help="output folder")
    text = (
        "percentile: fifths of the solve rates, from 1 (most solved) to 5, where equal"
        " rates share a level; keep: the levels of the input (default)"
    )
    add("--levels", choices=("percentile", "keep"), default="keep", help=text)
    text = "name of the scale of new levels (default: grade:MODEL)"
    add("--level_source", help=text)
    args = parser.parse_args(argv)
    if not args.model and args.levels == "keep":
        parser.error("nothing to do: give --model, or --levels percentile")
    if args.limit is not None and args.limit < 1:
        parser.error(f"--limit {args.limit}: must be at least 1")
    of = pathlib.Path(args.model or args.input[0]).stem
    new = args.level_source or f"grade:{of}"
    args.level_source = new if args.levels == "percentile" else None
    return args


if __name__ == "__main__":
    again = "grade: stopped; the same command resumes"
    sys.exit(stopping.run(again, lambda _: main()))
