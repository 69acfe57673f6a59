"""Grades problems by how often a model solves them, and turns rates into levels.

    python -m tools.grade --model HFDIR --input problems.jsonl --out DIR \\
        --samples 16 --levels percentile
    python -m tools.grade --config configs/quickstart.py --out DIR --samples 16
    python -m tools.grade --input problems.jsonl --levels percentile --out DIR
    python -m tools.grade --config CONFIG --from_run WORKDIR --out DIR
    python -m tools.grade --model HFDIR --input problems.jsonl --out DIR --judge

The third form needs no model: it turns the rates that the rows have into levels. The
fourth takes the rates that a run in training has found with its own groups. DIR gets
graded.jsonl (the rows with `solve_rate`, `solve_interval`, `graded`, `level`),
summary.json, and completions.jsonl and verdicts.jsonl as tools.evaluate keeps them. The
same command goes on where it was stopped, and judges again what it has drawn.

The last asks the model, once and greedily, whether each row is one complete, verifiable
question with this answer, which `judged` of the row then says. What DIR has been asked
it is not asked again. Rows with a hand-given `label`, true or false, tell how far it is
to be trusted: summary.json has the agreement.
"""

# ruff: noqa: E402

import signal

if __name__ == "__main__":
    # See rl.train: no traceback while the imports below go on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import collections
import dataclasses
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from configs.reading import UnreadableConfig, read_config, user_path
from configs.schema import take
from rl import files
from rl.evaluate import Drawn, score
from rl.problems.templates import encode_prompt
from rl.problems.tokenizer import default_stop_ids, load_tokenizer
from rl.processes.stopping import REFUSED, run
from rl.reward.verifier import verifier_reward
from rl.types import Problem
from rl.verifier import VERSION, VerifierPool
from rollout.types import Sampler, SamplerError
from tools.curation import grade as graded
from tools.curation import judge
from tools.curation.formats import parse_fields
from tools.curation.grade import Grade
from tools.curation.repair import with_answer
from tools.curation.sources import Source, read
from tools.evaluation.files import (
    record_conditions,
    write_verdicts,
)
from tools.evaluation.run import (
    Conditions,
    check_prompts,
    checkpoint_hash,
)
from tools.evaluation.sampler import add_flags, comma_separated, open_sampler, prepare
from tools.evaluation.tasks import Task, complete, present
from tools.evaluation.votes import answer_classes


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    try:
        rows = _rows(args)
        grades = {}
        if args.from_run:
            _take_rates(args, rows)
        elif args.judge:
            _judge(args, rows)
        elif args.model or args.config:
            grades = _grade(args, rows)
        _write(args, rows, grades)
    except (UnreadableConfig, ValueError, OSError, SamplerError) as error:
        print(f"grade: {error}", file=sys.stderr)
        return REFUSED
    return 0


def _rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    """What is graded, in our own schema."""
    if args.input:
        fields = parse_fields(args.fields)
        rows = [
            row.record()
            for path in args.input
            for row in map(with_answer, read(Source(path=path, fields=fields)))
            if row.answers
        ]
    else:
        from rl.problems.reading import load_problems

        data = read_config(args.config).data
        problems = load_problems(
            data.train, key="config.data.train", fields=data.fields, **data.train_args
        )
        rows = [
            dataclasses.asdict(p) | {"answer": p.answers[0], "solve_rate": None}
            for p in problems
        ]
    rows = rows[: args.limit]
    if not rows:
        raise ValueError(f"{args.input or args.config}: no problem with an answer")
    for row_id, count in collections.Counter(row["id"] for row in rows).items():
        if count > 1:
            raise ValueError(f"id {row_id!r} occurs {count} times")
    return rows


def _grade(args: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Grade]:
    """Grades by row id: each problem is tried `--samples` times."""
    problems = [
        Problem(
            id=row["id"],
            problem=row["problem"],
            answers=tuple(row["answers"]),
            meta=row["meta"],
        )
        for row in rows
    ]
    with files.locked(args.out):
        drawn = _drawn(args, graded.NAME, problems)
        drawn.sort(key=lambda d: (d.id, d.sample))
        with VerifierPool(workers=os.cpu_count() or 1) as pool:
            scored = score(drawn, problems, verifier_reward(pool.judge))
            classes = answer_classes(scored, pool)
        write_verdicts(args.out, {graded.NAME: scored}, {graded.NAME: classes})
    return graded.make_grades(scored, classes)


def _take_rates(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Gives rows the rates of a run, by its newest checkpoint that can be read."""
    import jax

    from rl.batches.rates import SolveRates
    from rl.checkpoint import steps_in
    from rl.plan import make_plan
    from rl.workdir.manifest import check_problems
    from rl.workdir.proof import Damaged, read_loop

    jax.config.update("jax_platforms", "cpu")  # the run may still have the others
    plan = make_plan(read_config(args.config))
    check_problems(args.from_run, plan)
    folder = args.from_run / "checkpoints"
    state = None
    for step in sorted(steps_in(folder), reverse=True):
        try:
            state = read_loop(folder / str(step), step)["rollouts"]["problems"]
            break
        except Damaged as error:
            print(f"{error}; an older checkpoint is taken", file=sys.stderr)
    if state is None:
        raise ValueError(f"{folder}: no checkpoint yet, or none that can be read")
    rates = SolveRates(plan.train, half_life=plan.config.sampling.half_life)
    rates.restore(state["rates"])
    now = rates.at(step).mean
    found = {p.id: float(now[i]) for i, p in enumerate(plan.train) if rates.seen[i]}
    for row in rows:
        row["solve_rate"] = found.get(row["id"])
        if row["solve_rate"] is not None:
            row["solve_rate_of"] = f"{args.from_run} after {step} steps"


def _judge(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Gives each row what the model says of it."""
    asked = [judge.question(row) for row in rows]
    with files.locked(args.out):
        drawn = _drawn(args, judge.NAME, list({p.id: p for p in asked}.values()))
    said = {reply.id: judge.opinion(reply) for reply in drawn}
    for row, problem in zip(rows, asked, strict=True):
        row["judged"] = said.get(problem.id, judge.UNASKED)


def _drawn(
    args: argparse.Namespace, name: str, problems: Sequence[Problem]
) -> list[Drawn]:
    """All completions of the problems: those kept in `--out`, and what they lack."""
    # Here, so that levels from given rates start without JAX.
    from rl.base_model import find_model
    from tools.evaluation import pretrained

    prepare(args)
    if args.config:
        config = read_config(args.config)
        folder = take(find_model, config.model)()
        args.template = args.template or config.data.template
        args.max_tokens = args.max_tokens or config.rollout.max_response_tokens
    else:
        folder = pretrained.find_folder(args.model)
    positions = pretrained.max_positions(folder)
    conditions = Conditions(
        template=args.template or ("model" if args.judge else "qwen_math"),
        samples=1 if args.judge else args.samples,
        temperature=0.0 if args.judge else args.temperature,
        top_p=args.top_p,
        max_tokens=args.max_tokens or 3072,
        context=min(args.context, positions),
        seed=args.seed,
        chunk=args.chunk,
    )
    dtype = pretrained.resolve_dtype(folder, args.dtype)
    tokenizer = load_tokenizer(folder)
    prompts = [
        encode_prompt(tokenizer, conditions.template, p.problem) for p in problems
    ]
    if args.judge:  # what is too long for it is not judged
        fits = [len(prompt) < conditions.context for prompt in prompts]
        problems = list(itertools.compress(problems, fits))
        prompts = list(itertools.compress(prompts, fits))
    shortened = check_prompts(problems, prompts, conditions, positions)
    if shortened and not args.judge:
        longest = max(map(len, prompts))
        raise ValueError(
            f"max_tokens={conditions.max_tokens} and a prompt of {longest} tokens"
            f" exceed the context of {conditions.context}"
        )
    drawing = dataclasses.asdict(conditions) | {
        "model": str(folder),
        "checkpoint": checkpoint_hash(folder),
        "dtype": dtype,
        "sampler": args.sampler,
    }
    if not args.judge:  # seeds depend on them
        drawing["problems"] = len(problems)
    record_conditions(args.out, {"drawing": drawing, "benchmarks": {}})
    task = Task(args.out, name, problems, prompts, conditions)

    def sampler() -> Sampler:
        return open_sampler(args, folder, dtype=dtype, context=conditions.context)

    complete([task], sampler, tokenizer, default_stop_ids(folder, tokenizer))
    return present([task])[0]


def _write(
    args: argparse.Namespace, rows: list[dict[str, Any]], grades: dict[str, Grade]
) -> None:
    rows = graded.graded_rows(rows, grades, args.level_source)
    rates = [row["solve_rate"] for row in rows if row["solve_rate"] is not None]
    if args.levels == "percentile" and not rates:
        raise ValueError(
            f"{args.input}: no row has a solve_rate, and no model is given"
        )
    if args.levels == "percentile" and not any(row["level"] == 5 for row in rows):
        print(
            f"grade: level 5 is empty: all {len(rates)} solve rates are {rates[0]:g};"
            " only more --samples or another model can tell what is hard",
            file=sys.stderr,
        )
    args.out.mkdir(parents=True, exist_ok=True)
    files.replace_rows(args.out / "graded.jsonl", rows)
    levels = collections.Counter(str(row["level"]) for row in rows)
    summary = {
        "problems": len(rows),
        "graded": len(grades),
        "mean_solve_rate": sum(rates) / len(rates) if rates else None,
        "never_solved": sum(rate == 0 for rate in rates),
        "always_solved": sum(rate == 1 for rate in rates),
        "never_answered": sum(g.unparsable == g.samples for g in grades.values()),
        "majority_against_gold": sum(g.against_gold for g in grades.values()),
        "unparsable": sum(g.unparsable for g in grades.values()),
        "truncated": sum(g.truncated for g in grades.values()),
        "completions": sum(g.samples for g in grades.values()),
        "verifier": VERSION,
        "levels": dict(sorted(levels.items())),
        "level_source": args.level_source,
    }
    if args.judge:
        verdicts = collections.Counter(row["judged"]["sound"] for row in rows)
        summary["judged"] = {
            "sound": verdicts[True],
            "unsound": verdicts[False],
            "unknown": verdicts[None],
        } | judge.agreement(rows)
    for path in filter(None, (args.out / "summary.json", args.json)):
        files.replace_json(path, summary)
    print(json.dumps(summary, indent=2))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.grade",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", help="HF folder, workdir of a run, or hub id")
    parser.add_argument(
        "--config", help="a training config: its base model, problems and template"
    )
    parser.add_argument(
        "--input",
        type=comma_separated,
        default=[],
        help="comma-separated JSONL, JSON or Parquet files, in any of the formats that "
        "tools/curation/formats.py lists",
    )
    parser.add_argument(
        "--fields",
        default="",
        help="of an --input in another format: problem=COLUMN,answer=COLUMN.key[0]",
    )
    parser.add_argument(
        "--out", type=user_path, required=True, help="folder of this grading"
    )
    parser.add_argument("--json", type=user_path, help="also write the summary here")
    parser.add_argument("--limit", type=int, help="first problems of the input")
    parser.add_argument(
        "--levels",
        choices=("percentile", "keep"),
        default="keep",
        help="percentile: fifths of the solve rates, 1 the most solved; ties share one,"
        " and the least solved are 5",
    )
    parser.add_argument("--level_source", help="name of the new levels' scale")
    parser.add_argument(
        "--judge",
        action="store_true",
        help="ask whether each row is sound, instead of grading; the prompt goes into "
        "--template, model where none is given",
    )
    parser.add_argument(
        "--from_run",
        type=user_path,
        metavar="WORKDIR",
        help="solve rates from the newest checkpoint of a run of --config",
    )
    asked = parser.add_argument_group("conditions")
    asked.add_argument("--samples", type=int, default=16, help="per problem")
    asked.add_argument("--template", help="none, qwen_math, r1, model, or a text")
    asked.add_argument("--temperature", type=float, default=1.0)
    asked.add_argument("--top_p", type=float, default=1.0)
    asked.add_argument("--max_tokens", type=int, help="of a completion")
    asked.add_argument("--context", type=int, default=4096, help="with its prompt")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--chunk", type=int, default=2048, help="completions in a call")
    add_flags(parser, slots=256)
    args = parser.parse_args(argv)
    if args.model and args.config:
        parser.error("--model and --config: give one of the two")
    if not (args.input or args.config):
        parser.error("--input or --config is required")
    if not (args.model or args.config) and args.levels == "keep":
        parser.error("nothing to do: give --model, or --levels percentile")
    if args.judge and not args.model:
        parser.error("--judge: which --model is asked?")
    if args.judge and args.levels == "percentile":
        parser.error("--judge: gives no rates to make --levels from")
    if args.from_run and (args.input or not args.config):
        parser.error("--from_run: goes with the run's --config, and with no --input")
    of = args.from_run or args.model or args.config or args.input[0]
    of = pathlib.Path(of).stem
    new = args.level_source or f"grade:{of}"
    args.level_source = new if args.levels == "percentile" else None
    return args


if __name__ == "__main__":
    again = "grade: stopped; the same command goes on from here"
    sys.exit(run(again, lambda _: main()))
