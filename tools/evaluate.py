"""Scores a model on mathematical benchmarks and compares it with published results.

    python -m tools.evaluate --model HFDIR_OR_WORKDIR --preset paper \\
        --benchmarks aime2024,amc83,math500,minerva272,olympiadbench675 \\
        --data_dir DATA --out DIR
    python -m tools.evaluate --rescore DIR [--json OUT]
    python -m tools.evaluate --compare DIR_A DIR_B ... [--out DIR] [--json OUT]

DIR stores every completion, so the same command resumes an interrupted evaluation. The
results are DIR/results.json, DIR/table.md and DIR/report.html. --rescore judges stored
completions again. --compare compares all other evaluations with DIR_A.
"""

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from configs.base import Reward
from configs.reading import comma_separated, output_folder, user_path
from rl import files
from rl.evaluate import score
from rl.problems.reading import HELD_OUT, read_problems
from rl.problems.templates import check_template
from rl.reward.rewards import VERIFIER, Rewards, try_out
from rl.types import Problem
from rl.verifier import VERSION
from rollout.cores import usable_cores
from tools import command
from tools.curation.formats import parse_fields
from tools.evaluation import audit, benchmarks, nearest, report, run, sampler
from tools.evaluation.compare import against_original, compare, compare_markdown
from tools.evaluation.files import (
    AUDIT,
    COMPLETIONS,
    judging_reward,
    problems_file,
    read_completions,
    read_conditions,
    write_verdicts,
)
from tools.evaluation.votes import answer_classes
from tools.page import markdown, page

_REWARD, _CLASSES = "--reward", "classes of answers"
_ADVICE = "make the function faster"  # if a call of a reward function times out


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    return command.run(_compare if args.compare else _evaluate, args)


def _evaluate(args: argparse.Namespace) -> dict[str, Any]:
    train = nearest.training_problems(args.nearest)
    if not args.rescore:
        _sample(args)
    elif not args.rescore.is_dir():
        raise FileNotFoundError(
            f"--rescore={args.rescore}: no such folder; give the --out of an evaluation"
        )
    folder = args.rescore or args.out
    with files.locked(folder):
        return _judge(folder, args, train)


def _sample(args: argparse.Namespace) -> None:
    workdir, held_out = pathlib.Path(args.model), "held_out"
    if held_out in args.benchmarks:
        keys = "eval.reward", "reward.function"
        args.reward = judging_reward(args.reward, workdir / "config.json", *keys)
        if not (workdir / HELD_OUT).is_file():
            raise ValueError(
                f"--model={workdir}: no {HELD_OUT}; give the workdir of a run with"
                " config.data.eval"
            )
    if args.template == "run":
        config = files.read_json(path := workdir / "config.json")
        with files.damaged(path, "give a run's workdir as --model"):
            check_template(config["data"]["template"])
        args.template = config["data"]["template"]
    fields = parse_fields(args.fields)  # not of held_out.jsonl, which is normalized
    problems: dict[str, list[Problem]] = {}
    for spec in dict.fromkeys(args.benchmarks):
        if (name := benchmarks.benchmark_name(spec)) in problems:
            raise ValueError(f"--benchmarks={spec}: {name} occurs twice; rename a file")
        if spec == held_out:
            problems[name] = read_problems(workdir / HELD_OUT)[: args.limit]
        else:
            problems[name] = benchmarks.load_benchmark(
                spec, args.data_dir, limit=args.limit, fields=fields
            )
    if args.reward:
        first = next(iter(problems.values()))[0]
        settings = Reward(right_from=args.right_from)
        try_out({_REWARD: args.reward}, first, settings, advice=_ADVICE)
    sampler.sample(args, run.PRESETS[args.preset], problems, audited=args.audit)


def _judge(
    folder: pathlib.Path, args: argparse.Namespace, train: Sequence[Problem]
) -> dict[str, Any]:
    completions, conditions = read_completions(folder), read_conditions(folder)
    if not completions:
        raise FileNotFoundError(
            f"{folder}: no completion in {COMPLETIONS}; give an evaluation's folder"
        )
    problems = {}
    for name, drawn in completions.items():
        own = problems_file(folder, name)
        if own.is_file():
            known = read_problems(own)
        else:  # a folder may have only completions
            known = benchmarks.load_benchmark(name, args.data_dir)
        sampled = conditions.get("benchmarks", {}).get(name, {})
        problems[name] = known[: sampled.get("problems")]
        hashed, fault = benchmarks.content_hash(problems[name]), ""
        if sampled.get("sha256", hashed) != hashed:
            fault = "was sampled from other problems or answers"
        elif unknown := {id for id, _ in drawn} - {p.id for p in problems[name]}:
            fault = f"has no problem {min(unknown)!r}"
        if fault:
            raise ValueError(
                f"{folder / COMPLETIONS}: {name} {fault}; restore {own}, or give the"
                " sampled copy's folder as --data_dir"
            )
    reward = judging_reward(args.reward, folder / "results.json", "reward")
    scored, results = {}, {}
    formulas = {_REWARD: reward, _CLASSES: VERIFIER}
    settings = Reward(workers=usable_cores(), right_from=args.right_from)
    with contextlib.closing(Rewards(formulas, settings, advice=_ADVICE)) as rewards:
        for name, known in problems.items():
            place = {problem.id: i for i, problem in enumerate(known)}
            every = completions[name].values()
            ordered = sorted(every, key=lambda d: (place[d.id], d.sample))
            of = scored[name] = score(ordered, known, rewards.reward(_REWARD))
            classes = answer_classes(of, rewards.reward(_CLASSES))
            results[name] = report.benchmark_result(name, len(known), of, classes)
    audited = read_completions(folder / AUDIT)
    for name, result in results.items():
        if original := benchmarks.made_from(name, problems):
            result["original"] = against_original(scored[original], scored[name])
        if args.nearest:
            result |= nearest.nearest_result(problems[name], train)
        parts = {p: [*audited.get(f"{name}@{p}", {}).values()] for p in audit.SHARES}
        if any(parts.values()):
            result["memory"] = audit.memory(problems[name], parts)
    written = {
        "model": conditions.get("model", str(folder)),
        "benchmarks": results,
        "average_of_five": report.average_of_five(results),
        "verifier": VERSION,
        "reward": reward,
        "conditions": conditions,
    }
    tables = report.tables(written)
    text = markdown(written["model"], tables)
    write_verdicts(folder, scored)
    files.replace(folder / "table.md", text)
    sections = tables + report.completions(written, scored)
    html = page(f"Evaluation of {written['model']}", sections)
    files.replace(folder / "report.html", html)
    files.replace_json(folder / "results.json", written)
    print(text, f"report: {folder / 'report.html'}", sep="\n")
    return written


def _compare(args: argparse.Namespace) -> dict[str, Any]:
    arms = [comma_separated(arm) for arm in args.compare]
    result = compare([[user_path(folder) for folder in arm] for arm in arms])
    text = compare_markdown(result)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        files.replace(args.out / "compare.md", text)
    print(text)
    return result


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = command.make_parser(__doc__)
    sampler.add_flags(
        parser,
        slots=64,
        default="those of the preset; --template run uses the workdir's",
    )
    add = parser.add_argument
    text = (
        "comma-separated: names, .jsonl files, hf://OWNER/DATASET/FILE.jsonl, held_out"
        " (the held-out problems of a workdir), or perturbed:NAME:DATE (new numbers for"
        " a benchmark with GSM8K's solutions); default: the paper's five"
    )
    many = comma_separated
    add("--benchmarks", type=many, action="extend", default=[], help=text)
    text = "columns of .jsonl files by field, such as problem=question,answer=gold"
    add("--fields", default="", help=text)
    text = "folder with NAME.jsonl or eval/NAME.jsonl"
    add("--data_dir", type=user_path, help=text)
    add("--out", type=output_folder, help="folder of this evaluation")
    text = (
        "also print the accuracy of a nearest-neighbour baseline over the training"
        " problems of this config"
    )
    add("--nearest", metavar="CONFIG", help=text)
    add("--preset", choices=run.PRESETS, default="paper")
    text = "also measure whether the model has memorized the problems"
    add("--audit", action="store_true", help=text)
    add = parser.add_argument_group("judging").add_argument
    text = (
        "verifier, module:function, or a sum, as config.reward.function; a function"
        " that the evaluation recorded runs only if it is given here"
    )
    add("--reward", help=text)
    text = "minimum reward of a correct completion, as config.reward.right_from"
    add("--right_from", type=float, default=1.0, help=text)
    add = parser.add_argument_group("other modes").add_argument
    text = "judge the stored completions of DIR again"
    add("--rescore", type=user_path, metavar="DIR", help=text)
    text = (
        "compare judged evaluations with the first, problem by problem; separate"
        " evaluations that differ only in the training seed by commas; --out receives"
        " compare.md"
    )
    add("--compare", nargs="+", action="extend", metavar="DIR", help=text)
    args = parser.parse_args(argv)
    if args.compare and len(args.compare) < 2:
        parser.error("--compare: give at least two evaluations")
    if not (args.rescore or args.compare):
        if not args.model:
            parser.error("--model, --rescore or --compare is required")
        args.benchmarks = args.benchmarks or list(report.FIVE)
        name = pathlib.Path(args.model).resolve().name
        args.out = args.out or pathlib.Path("runs", "evaluate", f"{name}-{args.preset}")
    return args


if __name__ == "__main__":
    sys.exit(main())
