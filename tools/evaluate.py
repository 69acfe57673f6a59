"""Scores a checkpoint on mathematical benchmarks, beside the paper's table.

    python -m tools.evaluate --model HFDIR_OR_WORKDIR --preset paper \\
        --benchmarks aime2024,amc83,math500,minerva272,olympiadbench675 \\
        --data_dir DATA --out DIR
    python -m tools.evaluate --rescore DIR --data_dir DATA --json OUT
    python -m tools.evaluate --compare DIR_A DIR_B ... [--out DIR --data_dir DATA]

DIR keeps every completion; the same command goes on where it was stopped. It ends with
results.json, table.md and report.html.
"""

# ruff: noqa: E402

import signal

if __name__ == "__main__":
    # See rl.train: no traceback while the imports below go on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from configs.reading import user_path
from rl import files
from rl.evaluate import SampledCompletion, score, templates_of
from rl.problems.tokenizer import default_stop_ids, load_tokenizer
from rl.processes.stopping import REFUSED, run
from rl.reward.rewards import VERIFIER, Rewards, try_out
from rl.reward.score import Reward
from rl.reward.verifier import verifier_reward
from rl.types import Problem
from rl.verifier import VERSION, VerifierPool
from rollout.types import Sampler, SamplerError
from tools.evaluation import audit
from tools.evaluation.benchmarks import (
    BENCHMARKS,
    benchmark_name,
    content_hash,
    is_another_copy,
    load_benchmark,
    made_from,
)
from tools.evaluation.compare import beside, compare, compare_markdown
from tools.evaluation.files import (
    judging_reward,
    problems_file,
    read_completions,
    read_conditions,
    record_conditions,
    write_problems,
    write_verdicts,
)
from tools.evaluation.pages import compare_page, results_page
from tools.evaluation.report import FIVE, average_of_five, benchmark_result, markdown
from tools.evaluation.run import (
    PRESETS,
    Conditions,
    check_prompts,
    checkpoint_hash,
)
from tools.evaluation.sampler import add_flags, comma_separated, open_sampler, prepare
from tools.evaluation.tasks import Task, asking, complete
from tools.evaluation.votes import answer_classes

_REWARD = "--reward"
AUDIT = "audit"  # folder in an evaluation's


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    try:
        if args.compare:
            return _compare(args)
        if args.rescore:
            return _rescore(args)
        return _evaluate(args)
    except (ValueError, OSError, SamplerError) as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return REFUSED


def _evaluate(args: argparse.Namespace) -> int:
    # Here, so that judging and comparing start without JAX.
    from tools.evaluation import pretrained

    if "held_out" in args.benchmarks:
        run = pathlib.Path(args.model) / "config.json"
        args.reward = judging_reward(args.reward, run, "eval.reward", "reward.function")
    prepare(args)
    folder = pretrained.find_folder(args.model)
    positions = pretrained.max_positions(folder)
    conditions = _conditions(args, positions)
    dtype = pretrained.resolve_dtype(folder, args.dtype)
    tokenizer = load_tokenizer(folder)
    stop_ids = default_stop_ids(folder, tokenizer)
    problems = {
        benchmark_name(spec): (
            pretrained.held_out(pathlib.Path(args.model))[0][: args.limit]
            if spec == "held_out"
            else load_benchmark(spec, args.data_dir, limit=args.limit)
        )
        for spec in args.benchmarks
    }
    if args.reward:
        try_out(
            {_REWARD: args.reward},
            next(iter(problems.values()))[0],
            timeout=args.reward_timeout,
            right_from=args.right_from,
        )
    tasks = [
        asking(args.out, name, of_name, tokenizer, conditions)
        for name, of_name in problems.items()
    ]
    facts = {
        t.name: {
            "problems": len(t.problems),
            "sha256": content_hash(t.problems),
            "shortened": check_prompts(t.problems, t.prompts, conditions, positions),
        }
        for t in tasks
    }
    drawing = dataclasses.asdict(conditions) | {
        "limit": args.limit,
        "sampler": args.sampler,
        "dtype": "the server's own" if args.url else dtype,
        "stop_token_ids": list(stop_ids),
        "checkpoint": checkpoint_hash(folder),
    }
    if args.audit:
        tasks += _audits(args.out / AUDIT, problems, tokenizer, conditions.context)
    with files.locked(args.out):
        record_conditions(
            args.out, {"model": args.model, "drawing": drawing, "benchmarks": facts}
        )
        for name in problems.keys() - BENCHMARKS.keys():
            write_problems(args.out, name, problems[name])

        def sampler() -> Sampler:
            return open_sampler(args, folder, dtype=dtype, context=conditions.context)

        complete(tasks, sampler, tokenizer, stop_ids)
        return _judge(args.out, args)


def _audits(
    folder: pathlib.Path,
    problems: Mapping[str, Sequence[Problem]],
    tokenizer,
    context: int,
) -> list[Task]:
    """What is asked to see whether the model knows the benchmarks by heart."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = []
    for name, of_name in problems.items():
        for percent in audit.SHARES:
            if cut := audit.partial_problems(of_name, percent):
                asked, rests = zip(*cut, strict=True)
                drawing = audit.conditions(rests, tokenizer, context)
                part = f"{name}@{percent}"
                tasks.append(asking(folder, part, asked, tokenizer, drawing))
    return tasks


def _rescore(args: argparse.Namespace) -> int:
    if not args.rescore.is_dir():
        raise FileNotFoundError(f"{args.rescore}: no such folder")
    with files.locked(args.rescore):
        return _judge(args.rescore, args)


def _judge(folder: pathlib.Path, args: argparse.Namespace) -> int:
    """Judges what completions.jsonl holds and writes everything that follows."""
    completions = read_completions(folder)
    if not completions:
        raise FileNotFoundError(f"{folder}: no completions.jsonl, nothing to judge")
    conditions = read_conditions(folder)
    specs = {benchmark_name(spec): spec for spec in args.benchmarks}
    whole = {
        name: _asked(folder, name, args.data_dir, specs.get(name, name))
        for name in completions
    }
    problems = {
        name: _of_drawn(name, of_name, completions[name], conditions, folder)
        for name, of_name in whole.items()
    }
    reward = judging_reward(args.reward, folder / "results.json", "reward")
    scored, results, classes = {}, {}, {}
    with (
        VerifierPool(workers=os.cpu_count() or 1) as pool,
        _opened(reward, args, pool) as judge,
    ):
        for name, drawn in completions.items():
            place = {problem.id: i for i, problem in enumerate(problems[name])}
            drawn = sorted(drawn, key=lambda d: (place[d.id], d.sample))
            scored[name] = score(drawn, problems[name], judge)
            classes[name] = answer_classes(scored[name], pool)
            results[name] = benchmark_result(
                name, problems[name], scored[name], classes[name]
            )
    heard = read_completions(folder / AUDIT)
    for name, result in results.items():
        if is_another_copy(name, whole[name]):
            result["title"] += ", another copy"
            result["another_copy"] = True
        if original := made_from(name, problems):
            result["original"] = beside(scored[original], scored[name])
        asked = {p: heard.get(f"{name}@{p}", []) for p in audit.SHARES}
        if any(asked.values()):
            result["memory"] = audit.memory(problems[name], asked)
    written = {
        "model": conditions.get("model", str(folder)),
        "benchmarks": results,
        "average_of_five": average_of_five(results),
        "verifier": VERSION,
        "reward": reward,
        "conditions": conditions,
    }
    table = markdown(written)
    clusters = {name: templates_of(of_name) for name, of_name in problems.items()}
    write_verdicts(folder, scored, classes, clusters)
    files.replace(folder / "table.md", table)
    files.replace(folder / "report.html", results_page(written, problems, scored))
    for path in filter(None, (folder / "results.json", args.json)):
        files.replace_json(path, written)
    print(table)
    print(f"browse {folder / 'report.html'}")
    return 0


def _asked(
    folder: pathlib.Path, name: str, data_dir: pathlib.Path | None, spec: str
) -> list[Problem]:
    """A benchmark's problems, from the evaluation's own folder if they are there."""
    own = problems_file(folder, name)
    return load_benchmark(str(own) if own.is_file() else spec, data_dir)


def _of_drawn(
    name: str,
    problems: list[Problem],
    drawn: Sequence[SampledCompletion],
    conditions: Mapping[str, Any],
    folder: pathlib.Path,
) -> list[Problem]:
    """Of a benchmark's problems those that were asked, which must be the same."""
    recorded = conditions.get("benchmarks", {}).get(name, {})
    problems = problems[: recorded.get("problems")]
    if recorded.get("sha256") not in (None, content_hash(problems)):
        raise ValueError(
            f"{folder / 'completions.jsonl'}: {name} was drawn from another copy, with"
            " other problems or answers; give that one by --data_dir"
        )
    ids = {problem.id for problem in problems}
    if unknown := [d.id for d in drawn if d.id not in ids]:
        raise ValueError(
            f"{folder / 'completions.jsonl'}: {name} has no problem {unknown[0]!r}"
        )
    return problems


@contextlib.contextmanager
def _opened(
    formula: str, args: argparse.Namespace, pool: VerifierPool
) -> Iterator[Reward]:
    """The reward by a formula; the verifier's own workers are there already."""
    if formula == VERIFIER:
        yield verifier_reward(pool.judge)
        return
    rewards = Rewards(
        {_REWARD: formula},
        workers=pool.workers,
        timeout=args.reward_timeout,
        right_from=args.right_from,
    )
    with contextlib.closing(rewards):
        yield rewards.reward(_REWARD)


def _compare(args: argparse.Namespace) -> int:
    arms = args.compare
    result = compare(arms)
    said = compare_markdown(result)
    if args.out:
        problems = {
            name: _asked(arms[0][0], name, args.data_dir, name)
            for name in result["benchmarks"]
        }
        args.out.mkdir(parents=True, exist_ok=True)
        files.replace(args.out / "compare.md", said)
        files.replace(args.out / "compare.html", compare_page(result, arms, problems))
        said += f"\nbrowse {args.out / 'compare.html'}"
    if args.json:
        files.replace_json(args.json, result)
    print(said)
    return 0


def _conditions(args: argparse.Namespace, positions: int) -> Conditions:
    """The preset, with what the command line says otherwise."""
    from tools.evaluation import pretrained

    preset = PRESETS[args.preset]
    said = {f.name: getattr(args, f.name) for f in dataclasses.fields(Conditions)}
    if args.template == "run":
        said["template"] = pretrained.held_out(pathlib.Path(args.model))[1]
    if args.context is None:
        said["context"] = min(preset.context, positions)
    given = {name: value for name, value in said.items() if value is not None}
    return dataclasses.replace(preset, **given)


def _arm(text: str) -> list[pathlib.Path]:
    """What is compared: a folder, or folders that differ in their training's seed."""
    return [user_path(folder) for folder in comma_separated(text)]


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", help="HF folder, workdir of a run, or hub id")
    parser.add_argument(
        "--benchmarks",
        type=comma_separated,
        default=[],
        help="comma-separated names, .jsonl files, hf://OWNER/DATASET/FILE.jsonl, "
        "held_out (of a workdir's run), clean:DATE (made on the spot), or "
        "perturbed:NAME:DATE (with other numbers, where its solutions are GSM8K's); "
        "default: the paper's five",
    )
    parser.add_argument(
        "--data_dir", type=user_path, help="holds NAME.jsonl of the names"
    )
    parser.add_argument("--out", type=user_path, help="folder of this evaluation")
    parser.add_argument("--json", type=user_path, help="also write the result here")
    parser.add_argument("--limit", type=int, help="first problems of each benchmark")
    asked = parser.add_argument_group("conditions, otherwise the preset's")
    asked.add_argument("--preset", choices=PRESETS, default="paper")
    asked.add_argument(
        "--template",
        help="none, qwen_math, r1, model, run (a workdir's), or a text with {problem}",
    )
    asked.add_argument("--samples", type=int, help="completions per problem")
    asked.add_argument("--temperature", type=float, help="0 is greedy")
    asked.add_argument("--top_p", type=float)
    asked.add_argument("--max_tokens", type=int, help="of a completion")
    asked.add_argument("--context", type=int, help="prompt and completion together")
    asked.add_argument("--seed", type=int)
    asked.add_argument(
        "--audit",
        action="store_true",
        help="also ask for the rest of each problem from part of it: known by heart?",
    )
    asked.add_argument("--chunk", type=int, help="completions in one call")
    judged = parser.add_argument_group("judging")
    judged.add_argument(
        "--reward",
        help="verifier, module:function, or a sum, as config.reward.function; of these "
        "alone a function is imported, never by what a folder names",
    )
    judged.add_argument(
        "--reward_timeout", type=float, default=5.0, help="seconds of a call of it"
    )
    judged.add_argument(
        "--right_from", type=float, default=1.0, help="as config.reward.right_from"
    )
    add_flags(parser, slots=64)
    other = parser.add_argument_group("other modes")
    other.add_argument(
        "--rescore",
        type=user_path,
        metavar="DIR",
        help="judge the completions of DIR again",
    )
    other.add_argument(
        "--compare",
        type=_arm,
        nargs="+",
        metavar="DIR",
        help="judged evaluations against the first, paired; those of several training "
        "seeds separated by commas; with --out also a page",
    )
    args = parser.parse_args(argv)
    if args.compare and len(args.compare) < 2:
        parser.error("--compare: give at least two evaluations")
    if not (args.rescore or args.compare):
        if not args.model:
            parser.error("--model, --rescore or --compare is required")
        if args.limit is not None and args.limit < 1:
            parser.error(f"--limit {args.limit}: must be at least 1")
        args.benchmarks = args.benchmarks or list(FIVE)
        name = pathlib.Path(args.model).resolve().name
        args.out = args.out or pathlib.Path("runs", "evaluate", f"{name}-{args.preset}")
    return args


if __name__ == "__main__":
    again = "evaluate: stopped; the same command goes on from here"
    sys.exit(run(again, lambda _: main()))
