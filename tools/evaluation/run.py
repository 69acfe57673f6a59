"""Samples the completions of an evaluation that are still missing.

Completions are requested in chunks of problems. The seed of a chunk depends only on the
evaluation's seed, the benchmark's name and the chunk's number. A resumed evaluation
keeps the stored completions, and samples the missing ones with the same seeds.
"""

import contextlib
import dataclasses
import hashlib
import pathlib
import zlib
from collections.abc import Callable, Sequence
from typing import Annotated, get_type_hints

from configs.schema import Count, Index, NotNegative, Range, violation
from rl.evaluate import SampledCompletion, draw
from rl.files import Rows, sha256_of_each, visible
from rl.problems.templates import check_template, decode_completion, encode_prompt
from rl.progress import watch
from rl.types import Problem
from rollout.seeds import derive
from rollout.types import Sampler, SamplingParams
from tools.evaluation.files import COMPLETIONS, read_completions
from tools.evaluation.pretrained import Pretrained


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Configures sampling; only results with equal conditions are comparable."""

    template: str  # see `rl.problems.templates.encode_prompt`
    samples: Count  # completions per problem
    temperature: NotNegative  # 0 selects greedy decoding
    top_p: Annotated[float, Range(0, 1, open=True)]  # mass of nucleus sampling
    max_tokens: Count  # maximum length of a completion
    context: Count  # maximum length of prompt and completion together, in tokens
    seed: Index = 0
    chunk: Count = 1024  # maximum completions per sampler call; a problem is not split

    def __post_init__(self) -> None:
        check_template(self.template)
        for key, hint in get_type_hints(Conditions, include_extras=True).items():
            if wrong := violation(value := getattr(self, key), hint):
                raise ValueError(f"{key}={value}: must {wrong}")
        if self.temperature == 0 and self.samples > 1:
            raise ValueError(
                f"samples={self.samples}: must be 1 at temperature 0, because all "
                "completions of a problem would be equal"
            )


# The harness of understand-r1-zero (arXiv 2503.20783), which gave the paper's base row.
PAPER = Conditions(
    template="none",
    samples=1,
    temperature=0.0,
    top_p=1.0,
    max_tokens=3000,
    context=4096,
)
QWEN_MATH = dataclasses.replace(PAPER, template="qwen_math")
# The sampling of DeepSeek-R1's evaluation (arXiv 2501.12948), with 32 completions.
AVG32 = dataclasses.replace(QWEN_MATH, samples=32, temperature=0.6, top_p=0.95)
PRESETS = {"paper": PAPER, "qwen_math": QWEN_MATH, "avg32": AVG32}


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """Describes the completions to sample for one benchmark."""

    folder: pathlib.Path  # folder of the evaluation
    name: str  # name of the benchmark
    problems: Sequence[Problem]
    prompts: Sequence[Sequence[int]]  # token ids of each problem's prompt
    conditions: Conditions


def make_task(
    folder: pathlib.Path,
    name: str,
    problems: Sequence[Problem],
    model: Pretrained,
    conditions: Conditions,
) -> Task:
    """Returns a task; its prompts have the template of `conditions`."""
    template, size = conditions.template, model.config.vocab_size
    prompts = [
        encode_prompt(model.tokenizer, template, p, vocab_size=size) for p in problems
    ]
    return Task(folder, name, problems, prompts, conditions)


def check_prompts(task: Task, max_positions: int, *, shorten: bool = True) -> int:
    """Returns how many prompts leave fewer than `max_tokens` tokens of the context.

    Raises ValueError if the context exceeds `max_positions` or a prompt fills it, or,
    without `shorten`, if a prompt leaves fewer than `max_tokens` tokens.
    """
    conditions = task.conditions
    if conditions.context > max_positions:
        raise ValueError(
            f"context={conditions.context}: must be at most {max_positions}, the "
            "positions of the model"
        )
    for problem, prompt in zip(task.problems, task.prompts, strict=True):
        if len(prompt) >= conditions.context:
            raise ValueError(
                f"{task.name}: problem {problem.id}: its prompt of {len(prompt)} tokens"
                f" fills context={conditions.context}; remove the problem, or raise"
                f" --context (at most {max_positions})"
            )
    left = conditions.context - conditions.max_tokens
    longest = max(map(len, task.prompts))
    if longest > left and not shorten:
        raise ValueError(
            f"max_tokens={conditions.max_tokens} and a prompt of {longest} tokens"
            f" exceed context={conditions.context}; raise --context or lower"
            " --max_tokens"
        )
    return sum(len(prompt) > left for prompt in task.prompts)


def complete(
    tasks: Sequence[Task], open_sampler: Callable[[], Sampler], model: Pretrained
) -> None:
    """Samples the missing completions of all tasks and stores each when it is finished.

    `open_sampler` is called only if a completion is missing.
    """
    kept = {folder: read_completions(folder) for folder in {t.folder for t in tasks}}
    stored = [{*kept[task.folder].get(task.name, ())} for task in tasks]
    total = sum(len(task.problems) * task.conditions.samples for task in tasks)
    there = sum(map(len, stored))
    if there == total:
        return
    with (
        contextlib.closing(open_sampler()) as sampler,
        watch("sample", total=total, unit="completions") as done,
    ):
        done.update(there)
        for task, finished in zip(tasks, stored, strict=True):
            _complete_task(task, finished, sampler, model, done.update)


def _complete_task(
    task: Task,
    stored: set[tuple[str, int]],
    sampler: Sampler,
    model: Pretrained,
    on_stored: Callable[[], object],
) -> None:
    problems, conditions = task.problems, task.conditions
    task.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(Rows(task.folder / COMPLETIONS)) as rows:

        def keep(drawn: SampledCompletion) -> None:
            if (drawn.id, drawn.sample) not in stored:
                stored.add((drawn.id, drawn.sample))
                rows.write({"benchmark": task.name} | dataclasses.asdict(drawn))
                on_stored()

        for number, (budget, chunk) in enumerate(_chunks(task.prompts, conditions)):
            missing = [
                i
                for i in chunk
                for sample in range(conditions.samples)
                if (problems[i].id, sample) not in stored
            ]
            if not missing:
                continue
            # Greedy decoding does not depend on the chunk: request only missing ones.
            requested = missing if conditions.temperature == 0 else chunk
            draw(
                [problems[i] for i in requested],
                [task.prompts[i] for i in requested],
                sampler=sampler,
                params=SamplingParams(
                    n=conditions.samples,
                    max_tokens=budget,
                    temperature=conditions.temperature,
                    top_p=conditions.top_p,
                    stop_token_ids=model.stop_token_ids,
                ),
                seed=derive(conditions.seed, zlib.crc32(task.name.encode()), number),
                decode=lambda ids: decode_completion(
                    model.tokenizer, ids, model.stop_token_ids
                ),
                on_drawn=keep,
            )


def _chunks(
    prompts: Sequence[Sequence[int]], conditions: Conditions
) -> list[tuple[int, list[int]]]:
    """Returns chunks of problems with one token limit, as (limit, problem indices)."""
    by_budget: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        budget = min(conditions.max_tokens, conditions.context - len(prompt))
        by_budget.setdefault(budget, []).append(i)
    size = max(1, conditions.chunk // conditions.samples)
    return [
        (budget, indices[start : start + size])
        for budget, indices in sorted(by_budget.items(), reverse=True)
        for start in range(0, len(indices), size)
    ]


def checkpoint_hash(folder: pathlib.Path) -> str:
    """Returns a SHA-256 hash of the config and all weight files of a folder."""
    weights = visible(folder, "*.safetensors")
    if not weights:
        raise FileNotFoundError(f"{folder}: no .safetensors file; give a model folder")
    digests = sha256_of_each([folder / "config.json", *weights])
    return hashlib.sha256(bytes.fromhex("".join(digests))).hexdigest()
