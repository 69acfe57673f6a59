"""Finds damaged and repeated problems and unreadable golds, before a run begins."""

import itertools
from collections.abc import Sequence

from rl.progress import watch
from rl.types import Problem
from rl.verifier import canonical_key, is_equivalent, self_check
from rl.verifier.parse.normalize import BROKEN_ESCAPE
from rl.verifier.pool import Lost, Workers


def unreadable_golds(
    problems: Sequence[Problem], *, workers: int, timeout: float
) -> dict[str, str]:
    """Returns why the verifier can read no gold answer of a problem, by problem id.

    Plain numbers are readable. Other golds are readable if the verifier can parse them
    and then finds them equal to themselves. `timeout` is in seconds per gold.
    """
    every = dict.fromkeys(gold for problem in problems for gold in problem.answers)
    golds = [gold for gold in every if not canonical_key(gold).startswith("=")]
    if not golds:
        return {}
    # A worker calls `functools.partial(self_check)`, which returns `self_check` itself.
    starts = range(0, len(golds), 64)
    requests = [((self_check,), golds[start : start + 64]) for start in starts]
    with (
        watch("golds", total=len(golds), unit="golds") as count,
        Workers(workers, timeout, "functools:partial") as pool,
    ):
        found = pool.map(requests, on_done=count.update)
    faults: dict[str, str | None] = {}
    for gold, result in zip(golds, itertools.chain(*found), strict=True):
        faults[gold] = result.reason if isinstance(result, Lost) else result
    return {
        p.id: f"the gold of problem {p.id!r}: {_tail(first)} {faults[first]}"
        for p in problems
        if all(map(faults.get, p.answers)) and (first := p.answers[0])
    }


def _tail(gold: str) -> str:
    text = repr(gold)
    return text if len(text) <= 60 else f"... {text[-50:]}"


def describe_faults(train: Sequence[Problem], held_out: Sequence[Problem]) -> list[str]:
    r"""Returns messages about damaged problems and repeated training problems.

    A problem is damaged if JSON has read a LaTeX command as an escape: `\frac` becomes
    a form feed and "rac". There is at most one message for damaged problems, one for
    repeats of an earlier training problem, one for such repeats with another answer,
    and one for repeats of held-out problems. Texts are compared without regard to white
    space. Two problems have the same answer if an answer of one is equivalent to an
    answer of the other.
    """
    damaged = [
        problem.id
        for problem in (*train, *held_out)
        if any(map(BROKEN_ESCAPE.search, (problem.problem, *problem.answers)))
    ]
    messages: list[str] = []
    if damaged:
        messages += [
            f"{len(damaged):,} problems have control characters in place of LaTeX"
            f" commands, such as the problem with id {damaged[0]!r}; JSON needs two"
            r" backslashes, as in \\frac"
        ]
    earlier: dict[str, Problem] = {}
    held = {_text(problem) for problem in held_out}
    duplicates, contradictions, overlap = [], [], []
    for problem in train:
        text = _text(problem)
        if text in held:
            overlap.append(problem.id)
        first = earlier.setdefault(text, problem)
        if first is not problem:
            duplicates.append(problem.id)
            if not agree(first.answers, problem.answers):
                contradictions.append(problem.id)
    kinds = (
        (duplicates, "repeat the text of an earlier problem"),
        (contradictions, "repeat the text of an earlier problem with another answer"),
        (overlap, "are also held-out problems, whose scores are then too high"),
    )
    return messages + [
        f"{len(ids):,} of {len(train):,} training problems {text}, such as the problem"
        f" with id {ids[0]!r}; remove them from config.data.train"
        for ids, text in kinds
        if ids
    ]


def _text(problem: Problem) -> str:
    return " ".join(problem.problem.split())


def agree(first: Sequence[str], second: Sequence[str]) -> bool:
    """Returns whether an answer in `first` equals an answer in `second`."""
    return not set(first).isdisjoint(second) or any(
        is_equivalent(a, b) for a in first for b in second
    )
