"""Scores a checkpoint on mathematical benchmarks, beside the paper's table.

    python -m tools.evaluate --model HFDIR_OR_WORKDIR --preset paper \\
        --benchmarks aime2024,amc83,math500,minerva272,olympiadbench675 \\
        --data_dir DATA --out DIR
    python -m tools.evaluate --rescore DIR --data_dir DATA --json OUT
    python -m tools.evaluate --compare DIR_A DIR_B

DIR keeps every completion; the same command goes on where it was stopped. It ends with
results.json, table.md and report.html.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tqdm

from rl.benchmarks import BENCHMARKS, benchmark_name, content_hash, load_benchmark
from rl.evaluate import Drawn, score
from rl.evaluation.compare import compare, compare_markdown
from rl.evaluation.files import (
    opened,
    problems_file,
    read_completions,
    read_conditions,
    record_conditions,
    replace_file,
    write_problems,
    write_verdicts,
)
from rl.evaluation.page import page
from rl.evaluation.report import FIVE, average_of_five, benchmark_result, markdown
from rl.evaluation.run import (
    PRESETS,
    Conditions,
    check_prompts,
    checkpoint_hash,
    draw_missing,
)
from rl.judging import answer_classes, make_judge
from rl.templates import encode_prompt
from rl.types import Problem
from rl.verifier import VERSION, VerifierPool
from rollout.types import SamplerError
from tools.sampler import add_flags, comma_separated, open_sampler, prepare


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
        return 2


def _stop(number: int, _frame) -> None:
    print("evaluate: stopped; the same command goes on from here", file=sys.stderr)
    sys.exit(128 + number)


def _evaluate(args: argparse.Namespace) -> int:
    # Here, so that judging and comparing start without JAX.
    from rl import plan, pretrained

    prepare(args)
    folder = pretrained.find_folder(args.model)
    positions = pretrained.max_positions(folder)
    conditions = _conditions(args, positions)
    dtype = pretrained.resolve_dtype(folder, args.dtype)
    tokenizer = plan.load_tokenizer(folder)
    stop_ids = plan.default_stop_ids(folder, tokenizer)
    problems = {
        benchmark_name(spec): (
            pretrained.held_out(pathlib.Path(args.model))[0]
            if spec == "held_out"
            else load_benchmark(spec, args.data_dir)
        )[: args.limit]
        for spec in args.benchmarks
    }
    prompts = {
        name: [
            encode_prompt(tokenizer, conditions.template, p.problem) for p in of_name
        ]
        for name, of_name in problems.items()
    }
    facts = {
        name: {
            "problems": len(of_name),
            "sha256": content_hash(of_name),
            "shortened": check_prompts(of_name, prompts[name], conditions, positions),
        }
        for name, of_name in problems.items()
    }
    drawing = dataclasses.asdict(conditions) | {
        "limit": args.limit,
        "sampler": args.sampler,
        "dtype": "the server's own" if args.url else dtype,
        "stop_token_ids": list(stop_ids),
        "checkpoint": checkpoint_hash(folder),
    }
    with opened(args.out):
        record_conditions(
            args.out, {"model": args.model, "drawing": drawing, "benchmarks": facts}
        )
        for name in problems.keys() - BENCHMARKS.keys():
            write_problems(args.out, name, problems[name])
        kept = read_completions(args.out)
        begun = sum(len(kept.get(name, ())) for name in problems)
        total = conditions.samples * sum(map(len, problems.values()))
        if begun < total:
            sampler = open_sampler(
                args, folder, dtype=dtype, context=conditions.context
            )
            bar = tqdm.tqdm(total=total, initial=begun, unit="completion")
            with contextlib.closing(sampler), bar:
                for name in problems:
                    bar.set_description(name)
                    draw_missing(
                        args.out,
                        name,
                        problems[name],
                        prompts[name],
                        conditions=conditions,
                        stop_token_ids=stop_ids,
                        sampler=sampler,
                        decode=lambda ids: tokenizer.decode(
                            ids, skip_special_tokens=True
                        ),
                        on_kept=lambda drawn: bar.update(),
                    )
        return _judge(args.out, args)


def _rescore(args: argparse.Namespace) -> int:
    if not args.rescore.is_dir():
        raise FileNotFoundError(f"{args.rescore}: no such folder")
    with opened(args.rescore):
        return _judge(args.rescore, args)


def _judge(folder: pathlib.Path, args: argparse.Namespace) -> int:
    """Judges what completions.jsonl holds and writes everything that follows."""
    completions = read_completions(folder)
    if not completions:
        raise FileNotFoundError(f"{folder}: no completions.jsonl, nothing to judge")
    conditions = read_conditions(folder)
    recorded = (conditions or {}).get("benchmarks", {})
    specs = {benchmark_name(spec): spec for spec in args.benchmarks}
    problems: dict[str, Sequence[Problem]] = {}
    for name, drawn in completions.items():
        own = problems_file(folder, name)
        spec = str(own) if own.is_file() else specs.get(name, name)
        problems[name] = load_benchmark(spec, args.data_dir)
        if name in recorded:
            problems[name] = problems[name][: recorded[name]["problems"]]
        _check_ids(name, problems[name], drawn, folder)
    scored, results = {}, {}
    with VerifierPool(workers=os.cpu_count() or 1) as pool:
        for name, drawn in completions.items():
            scored[name] = score(
                _in_order(drawn, problems[name]), problems[name], make_judge(pool)
            )
            classes = answer_classes(scored[name], pool)
            results[name] = benchmark_result(
                name, problems[name], scored[name], classes
            )
    written = {
        "model": (conditions or {}).get("model", str(folder)),
        "benchmarks": results,
        "average_of_five": average_of_five(results),
        "verifier": VERSION,
        "conditions": conditions,
    }
    table = markdown(written)
    write_verdicts(folder, scored)
    replace_file(folder / "table.md", table)
    replace_file(folder / "report.html", page(written, problems, scored))
    _write_json(folder / "results.json", written)
    if args.json:
        _write_json(args.json, written)
    print(table)
    print(f"browse {folder / 'report.html'}")
    return 0


def _compare(args: argparse.Namespace) -> int:
    result = compare(*args.compare)
    if args.json:
        _write_json(args.json, result)
    print(compare_markdown(result))
    return 0


def _check_ids(
    name: str,
    problems: Sequence[Problem],
    drawn: Sequence[Drawn],
    folder: pathlib.Path,
) -> None:
    ids = {problem.id for problem in problems}
    unknown = [d.id for d in drawn if d.id not in ids]
    if unknown:
        raise ValueError(
            f"{folder / 'completions.jsonl'}: {name} has no problem {unknown[0]!r}"
        )


def _in_order(drawn: Sequence[Drawn], problems: Sequence[Problem]) -> list[Drawn]:
    place = {problem.id: i for i, problem in enumerate(problems)}
    return sorted(drawn, key=lambda d: (place[d.id], d.sample))


def _conditions(args: argparse.Namespace, positions: int) -> Conditions:
    """The preset, with what the command line says otherwise."""
    from rl import pretrained

    preset = PRESETS[args.preset]
    fields = [field.name for field in dataclasses.fields(Conditions)]
    said = {name: getattr(args, name) for name in fields}
    if args.template == "run":
        said["template"] = pretrained.held_out(pathlib.Path(args.model))[1]
    if args.context is None:
        said["context"] = min(preset.context, positions)
    return dataclasses.replace(
        preset, **{name: value for name, value in said.items() if value is not None}
    )


def _write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    replace_file(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    path = pathlib.Path
    parser.add_argument("--model", help="HF folder, workdir of a run, or hub id")
    parser.add_argument(
        "--benchmarks",
        type=comma_separated,
        default=[],
        help="comma-separated names, .jsonl files, hf://OWNER/DATASET/FILE.jsonl, or "
        "held_out (of a workdir's run); default: the paper's five",
    )
    parser.add_argument("--data_dir", type=path, help="holds NAME.jsonl of the names")
    parser.add_argument("--out", type=path, help="folder of this evaluation")
    parser.add_argument("--json", type=path, help="also write the result here")
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
    asked.add_argument("--chunk", type=int, help="completions in one call")
    add_flags(parser, slots=64)
    other = parser.add_argument_group("other modes")
    other.add_argument(
        "--rescore", type=path, metavar="DIR", help="judge the completions of DIR again"
    )
    other.add_argument(
        "--compare",
        type=path,
        nargs=2,
        metavar=("A", "B"),
        help="two judged evaluations, paired",
    )
    args = parser.parse_args(argv)
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
    # A preempting scheduler's SIGTERM leaves what Ctrl-C leaves.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    sys.exit(main())
