"""What is to be drawn, into which folder, and the drawing of what is not there yet."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from rl.evaluate import SampledCompletion
from rl.problems.templates import encode_prompt
from rl.progress import watch
from rl.types import Problem
from rollout.types import Sampler
from tools.evaluation.files import appended, read_completions
from tools.evaluation.run import Conditions, draw_missing


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """Completions to be drawn: into which folder and under which name, of what."""

    folder: pathlib.Path
    name: str
    problems: Sequence[Problem]
    prompts: Sequence[Sequence[int]]  # token ids for each problem
    conditions: Conditions


def asking(
    folder: pathlib.Path,
    name: str,
    problems: Sequence[Problem],
    tokenizer,
    conditions: Conditions,
) -> Task:
    """The task of asking these problems with the conditions' template."""
    template = conditions.template
    prompts = [encode_prompt(tokenizer, template, p.problem) for p in problems]
    return Task(folder, name, problems, prompts, conditions)


def present(tasks: Sequence[Task]) -> list[list[SampledCompletion]]:
    """Of each task the completions that lie in its folder, of its problems alone."""
    kept = {folder: read_completions(folder) for folder in {t.folder for t in tasks}}
    wanted = [{problem.id for problem in task.problems} for task in tasks]
    return [
        [d for d in kept[task.folder].get(task.name, ()) if d.id in ids]
        for task, ids in zip(tasks, wanted, strict=True)
    ]


def complete(
    tasks: Sequence[Task],
    open_sampler: Callable[[], Sampler],
    tokenizer,
    stop_token_ids: tuple[int, ...],
) -> None:
    """Draws what the tasks lack, and keeps each completion as it ends.

    The sampler is opened only where something is lacking, and closed. It raises what
    that raises; what was drawn until then stays.
    """
    begun = present(tasks)
    total = sum(len(task.problems) * task.conditions.samples for task in tasks)
    there = sum(map(len, begun))
    if there == total:
        return
    with (
        contextlib.closing(open_sampler()) as sampler,
        watch("sample", total=total, unit="completions") as done,
    ):
        done.update(there)
        for task, of_task in zip(tasks, begun, strict=True):
            _draw(task, of_task, sampler, tokenizer, stop_token_ids, done.update)


def _draw(
    task: Task,
    begun: Sequence[SampledCompletion],
    sampler: Sampler,
    tokenizer,
    stop_token_ids: tuple[int, ...],
    on_one: Callable[[], None],
) -> None:
    with appended(task.folder) as append:

        def keep(drawn: SampledCompletion) -> None:
            append(task.name, drawn)
            on_one()

        draw_missing(
            task.name,
            task.problems,
            task.prompts,
            present=[(drawn.id, drawn.sample) for drawn in begun],
            conditions=task.conditions,
            stop_token_ids=stop_token_ids,
            sampler=sampler,
            decode=lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
            on_drawn=keep,
        )
