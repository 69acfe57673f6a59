"""Exact and near duplicates, and what to do when their answers disagree."""

import collections
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from tqdm import tqdm

from tools.curation.answers import AnswerJudge
from tools.curation.plan import Near, Plan
from tools.curation.row import Screened
from tools.curation.text import numbers, similarity

T = TypeVar("T", bound=Hashable)


def drop_duplicates(
    plan: Plan,
    rows: Sequence[Screened],
    judge: AnswerJudge,
    scale: str | None,
    quiet: bool = False,
) -> None:
    """Leaves one row of each problem, and none whose copies contradict each other.

    Of copies the first with a level on `scale` stays, else the first. Rows of one key
    are one problem with the answers of all. Each problem is compared with the first of
    those before it that it shares a band with.
    """
    ordered = sorted(rows, key=lambda row: row.record["level_source"] != scale)
    problems: dict[str, list[Screened]] = collections.defaultdict(list)
    for row in ordered:
        if row.survives:
            problems[row.key].append(row)
    groups: list[list[Copy]] = []
    leaders: list[tuple[str, Sequence[str]]] = []
    holders: dict[int, list[int]] = collections.defaultdict(list)
    for same in tqdm(
        problems.values(), desc="duplicates", unit="problem", disable=quiet
    ):
        given = dict.fromkeys(answer for row in same for answer in row.answers)
        text = same[0].problem, tuple(given)
        met = {n for band in same[0].bands for n in holders.get(band, ())}
        related = (
            (n, relation(leaders[n], text, plan.near, judge.equal)) for n in sorted(met)
        )
        near = [(n, *found) for n, found in related if found]
        if near:
            n, kind, score = max(near, key=lambda found: found[2])
            groups[n] += [Copy(row, kind, score) for row in same]
        else:
            for band in same[0].bands:
                holders[band].append(len(groups))
            groups.append([Copy(row, "exact", 1.0) for row in same])
            leaders.append(text)
    for group in groups:
        if len(group) > 1:
            _drop_copies(group, judge, plan.conflicts == "majority")


class Copy(NamedTuple):
    """A row, and how it relates to the first of its group: "exact", or `relation`."""

    row: Screened
    kind: str
    score: float


def _drop_copies(group: Sequence[Copy], judge: AnswerJudge, majority: bool) -> None:
    """All but one row of a group, or all of them where their answers disagree."""
    told = [copy.row for copy in group if copy.kind != "variant"]
    classes = agreeing(told, lambda row: row.answers, judge.equal)
    needed = len(told) / 2 if majority else len(told) - 1
    stay = next((some for some in classes if len(some) > needed), ())
    original = stay[0] if stay else told[0]
    given = " / ".join(some[0].answers[0][:40] for some in classes)
    for row in told:
        if row not in stay:
            other = next(some[0] for some in classes if row not in some)
            row.against("conflicting_answers", given, other.seen)
    for row, kind, score in group:
        if row is not original and kind == "exact":
            row.against("exact_duplicate", f"of {original.id}", original.seen)
        elif row is not original:
            said = f"of {original.id}: {kind}, similarity {score:.2f}"
            row.against("near_duplicate", said, original.seen)


def relation(
    kept: tuple[str, Sequence[str]],
    other: tuple[str, Sequence[str]],
    near: Near,
    equal: Callable[[Sequence[str], Sequence[str]], bool],
) -> tuple[str, float] | None:
    """How two problems are near duplicates, if they are.

    Args:
      kept: text and answers.
      other: text and answers.
      near: what similarity makes them which.
      equal: whether two lists of accepted answers agree.

    Returns:
      (kind, similarity), or None. "same": one problem reworded. "variant": the
      same words with other numbers, or a sibling question. "conflict": one problem
      with two answers.
    """
    score = similarity(kept[0], other[0])
    if score < near.same_answer_threshold:
        return None
    if numbers(kept[0]) != numbers(other[0]):
        return ("variant", score) if score >= near.threshold else None
    if equal(kept[1], other[1]):
        return "same", score
    if score < near.threshold:
        return None
    return ("conflict" if score >= near.conflict_threshold else "variant"), score


def agreeing(
    members: Sequence[T],
    answers: Callable[[T], Sequence[str]],
    equal: Callable[[Sequence[str], Sequence[str]], bool],
) -> list[list[T]]:
    """Members in classes of equal answers, in order of first appearance."""
    classes: dict[Sequence[str], list[T]] = {}
    for member in members:
        mine = tuple(answers(member))
        for theirs, agreed in classes.items():
            if mine == theirs or equal(theirs, mine):
                agreed.append(member)
                break
        else:
            classes[mine] = [member]
    return list(classes.values())
