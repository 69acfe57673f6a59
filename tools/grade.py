"""Measures how often a model solves each problem, and turns solve rates into levels.

    python -m tools.grade --model HFDIR --input problems.jsonl --out DIR \\
        --samples 16 --levels percentile

The command writes summary.json and graded.jsonl into DIR. graded.jsonl has the input
rows that have an answer, with `solve_rate`, `solve_interval` and `graded`. `--levels
percentile` also sets their `level`. The other files are those of tools.evaluate. The
same command resumes an interrupted run and judges all stored completions again.
tools.curate reads `graded` as evidence that gold answers are right.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from configs.reading import comma_separated, output_folder
from rl import files
from rl.evaluate import Scored, by_problem, score, summarise
from rl.reward.verifier import verifier_reward
from rl.statistics import wilson_interval
from rl.types import Problem
from rl.verifier import VERSION, VerifierPool
from rollout.cores import usable_cores
from tools import command
from tools.curation.formats import parse_fields
from tools.curation.levels import percentile_levels
from tools.curation.repair import with_answer
from tools.curation.sources import Source, check_output, read
from tools.evaluation import run, sampler
from tools.evaluation.files import read_completions, write_verdicts
from tools.evaluation.votes import answer_classes

_NAME = "graded"  # the benchmark name in completions.jsonl and verdicts.jsonl
_CONDITIONS = dataclasses.replace(
    run.QWEN_MATH, samples=16, temperature=1.0, max_tokens=3072, chunk=2048
)


def main(argv: Sequence[str] | None = None) -> int:
    return command.run(_grade, _parse(argv))


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
    ((row_id, count),) = Counter(row["id"] for row in rows).most_common(1)
    if count > 1:
        raise ValueError(
            f"--input={','.join(args.input)}: id {row_id!r} occurs {count} times;"
            " make ids unique"
        )
    return rows


def _grade(args: argparse.Namespace) -> dict[str, Any]:
    rows, keys = _rows(args), ("id", "problem", "meta")
    problems = [
        Problem(**{key: row[key] for key in keys}, answers=tuple(row["answers"]))
        for row in rows
    ]
    # Completions of fewer tokens would make long problems appear harder.
    sampler.sample(args, _CONDITIONS, {_NAME: problems}, shorten=False)
    with files.locked(args.out):
        drawn = [one for _, one in sorted(read_completions(args.out)[_NAME].items())]
        with VerifierPool(workers=usable_cores()) as pool:
            judge = verifier_reward(pool.judge)
            scored = score(drawn, problems, judge)
            classes = answer_classes(scored, judge)
        write_verdicts(args.out, {_NAME: scored})
        groups = by_problem(scored)
        for row in rows:
            graded = grade(groups[row["id"]], classes[row["id"]])
            counts = graded["correct"], graded["samples"]
            row["solve_rate"] = counts[0] / counts[1]
            row["solve_interval"] = [round(end, 6) for end in wilson_interval(*counts)]
            row["graded"] = graded
        rates = [row["solve_rate"] for row in rows]
        if args.level_source is not None:
            for row, level in zip(rows, percentile_levels(rates), strict=True):
                row["level"], row["level_source"] = level, args.level_source
        files.replace_rows(args.out / "graded.jsonl", rows)
        summary = summarise(scored) | {
            "never_solved": sum(rate == 0 for rate in rates),
            "always_solved": sum(rate == 1 for rate in rates),
            "majority_against_gold": sum(r["graded"]["against_gold"] for r in rows),
            "verifier": VERSION,
            "levels": dict(sorted(Counter(str(row["level"]) for row in rows).items())),
            "level_source": args.level_source,
        }
        files.replace_json(args.out / "summary.json", summary)
    print(json.dumps(summary, indent=2))
    return summary


def grade(group: Sequence[Scored], classes: Sequence[str | None]) -> dict[str, Any]:
    """Returns the `graded` of a row from the completions of its problem.

    `unparsable` counts completions without an answer, `truncated` those that reached
    the token limit. `majority` is the most frequent answer, and `agreement` the share
    of the completions that give it. `classes` has the class of each completion's
    answer; see `answer_classes`.
    """
    votes = Counter(kind for kind in classes if kind is not None)
    leader, count = votes.most_common(1)[0] if votes else (None, 0)
    first = group[classes.index(leader)] if votes else None
    return {
        "samples": len(group),
        "correct": sum(s.correct for s in group),
        "unparsable": sum(s.answer is None for s in group),
        "truncated": sum(s.drawn.finish_reason == "length" for s in group),
        "majority": first.answer if first else None,
        "agreement": count / len(group),
        "against_gold": first is not None and first.verdict.correct is False,
    }


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = command.make_parser(__doc__)
    default = dataclasses.asdict(_CONDITIONS).items()
    text = ", ".join(f"{name} {value}" for name, value in default)
    sampler.add_flags(parser, slots=256, default=text)
    add = parser.add_argument
    text = (
        "comma-separated JSONL, JSON or Parquet files, in any of the formats that"
        " tools/curation/formats.py lists"
    )
    many = comma_separated
    add("--input", type=many, action="extend", required=True, help=text)
    text = "columns of files of other formats: problem=COLUMN,answer=COLUMN.key[0]"
    add("--fields", default="", help=text)
    add("--out", type=output_folder, required=True, help="output folder")
    text = (
        "percentile: fifths of the solve rates, from 1 (most solved) to 5, where equal"
        " rates share a level; keep: the levels of the input (default)"
    )
    add("--levels", choices=("percentile", "keep"), default="keep", help=text)
    text = "name of the scale of new levels (default: grade:MODEL)"
    add("--level_source", help=text)
    args = parser.parse_args(argv)
    if not args.model:
        parser.error("--model is required")
    new = args.level_source or f"grade:{pathlib.Path(args.model).resolve().name}"
    args.level_source = new if args.levels == "percentile" else None
    return args


if __name__ == "__main__":
    sys.exit(main())
