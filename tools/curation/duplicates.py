"""Exact and near duplicates, and what to do when their answers disagree."""

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tqdm import tqdm

from tools.curation.answers import AnswerJudge
from tools.curation.plan import Near, Plan
from tools.curation.row import Row
from tools.curation.text import numbers, similarity


def drop_duplicates(
    plan: Plan,
    rows: Sequence[Row],
    judge: AnswerJudge,
    scale: str | None,
    quiet: bool = False,
) -> None:
    """Leaves one row of each problem, and none whose copies contradict each other.

    Of copies the first with a level on `scale` stays, else the first. Rows of one key
    are one problem with the answers of all. Each problem is compared with the first of
    those before it that it shares a band with.
    """
    problems: dict[str, list[Row]] = collections.defaultdict(list)
    for row in sorted(rows, key=lambda row: row.level_source != scale):
        if row.survives:
            problems[row.key].append(row)
    groups: list[list[Copy]] = []
    firsts: list[tuple[str, Sequence[str]]] = []
    met: dict[int, list[int]] = collections.defaultdict(list)  # band -> groups
    for same in tqdm(problems.values(), "duplicates", unit="problem", disable=quiet):
        given = dict.fromkeys(answer for row in same for answer in row.answers)
        asked, bands = (same[0].problem, tuple(given)), same[0].bands
        near = [
            (n, *found)
            for n in sorted({n for band in bands for n in met.get(band, ())})
            if (found := relation(firsts[n], asked, plan.near, judge.equal))
        ]
        if near:
            n, kind, score = max(near, key=lambda found: found[2])
            groups[n] += [Copy(row, kind, score) for row in same]
        else:
            for band in bands:
                met[band].append(len(groups))
            groups.append([Copy(row, "exact", 1.0) for row in same])
            firsts.append(asked)
    for group in groups:
        if len(group) > 1:
            _drop_copies(group, judge, plan.conflicts == "majority")


class Copy(NamedTuple):
    """A row, and how it relates to the first of its group: "exact", or `relation`."""

    row: Row
    kind: str
    score: float


def _drop_copies(group: Sequence[Copy], judge: AnswerJudge, majority: bool) -> None:
    """All but one row of a group, or all of them where their answers disagree."""
    told = [copy.row for copy in group if copy.kind != "variant"]
    classes = agreeing(told, judge.equal)
    needed = len(told) / 2 if majority else len(told) - 1
    stay = next((some for some in classes if len(some) > needed), ())
    original = stay[0] if stay else told[0]
    given = " / ".join(some[0].answers[0][:40] for some in classes)
    for row in told:
        if row not in stay:
            other = next(some[0] for some in classes if row not in some)
            row.against("conflicting_answers", given, other)
    for row, kind, score in group:
        if row is not original and kind == "exact":
            row.against("exact_duplicate", f"of {original.id}", original)
        elif row is not original:
            said = f"of {original.id}: {kind}, similarity {score:.2f}"
            row.against("near_duplicate", said, original)


def relation(
    kept: tuple[str, Sequence[str]],
    other: tuple[str, Sequence[str]],
    near: Near,
    equal: Callable[[Sequence[str], Sequence[str]], bool],
) -> tuple[str, float] | None:
    """How two problems are near duplicates, if they are.

    Args:
      kept, other: text and answers.
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
    rows: Sequence[Row],
    equal: Callable[[Sequence[str], Sequence[str]], bool],
) -> list[list[Row]]:
    """Rows in classes of equal answers, in order of first appearance."""
    classes: list[list[Row]] = []
    for row in rows:
        same = (some for some in classes if equal(some[0].answers, row.answers))
        if found := next(same, None):
            found.append(row)
        else:
            classes.append([row])
    return classes
