"""Exact and near duplicates, and what to do when their answers disagree."""

import collections
import zlib
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np
from datasketch import MinHash
from tqdm import tqdm

from tools.curation.answers import AnswerJudge
from tools.curation.plan import Near, Plan
from tools.curation.row import Screened
from tools.curation.text import jaccard, numbers, shingles, skeleton, views

BANDS, ROWS = 32, 4
"""A pair of Jaccard similarity s meets in a band with probability 1 - (1 - s^4)^32:
above 0.9999 at 0.8, 0.988 at 0.6, 0.56 at 0.4."""

T = TypeVar("T", bound=Hashable)


def drop_duplicates(
    plan: Plan,
    rows: Sequence[Screened],
    judge: AnswerJudge,
    scale: str | None,
    quiet: bool = False,
) -> None:
    """Leaves one row of each problem, and none whose copies contradict each other.

    Of copies the first with a level on `scale` stays, else the first.
    """
    kept_first = sorted(rows, key=lambda row: row.record["level_source"] != scale)
    agreed: collections.Counter[Screened] = collections.Counter()
    _drop_exact(plan, rows, kept_first, judge, agreed)
    _drop_near(plan, [row for row in kept_first if row.survives], judge, agreed, quiet)


def _drop_exact(
    plan: Plan,
    rows: Sequence[Screened],
    kept_first: Sequence[Screened],
    judge: AnswerJudge,
    agreed: collections.Counter[Screened],
) -> None:
    copies: dict[str, list[Screened]] = collections.defaultdict(list)
    for row in kept_first:
        copies[row.key].append(row)
    first_read = {row.key: row for row in reversed(rows)}
    for key, members in copies.items():
        if len(members) == 1:
            continue
        alive = [row for row in members if row.survives]
        classes = agreeing(alive, lambda row: row.answers, judge.equal)
        stay = alive
        if len(classes) > 1:
            stay = list(vote(classes)) if plan.conflicts == "majority" else []
            given = " / ".join(some[0].answers[0][:40] for some in classes)
            for row in alive:
                if row not in stay:
                    other = next(some[0] for some in classes if row not in some)
                    row.against("conflicting_answers", given, other.seen)
        # Where nothing survives, all but the first reading are still surplus.
        original = stay[0] if stay else first_read[key]
        for row in members:
            if row is not original:
                said = f"of {original.record['id']}"
                row.against("exact_duplicate", said, original.seen)
        agreed[original] += max(0, len(stay) - 1)


def _drop_near(
    plan: Plan,
    rows: Sequence[Screened],
    judge: AnswerJudge,
    agreed: collections.Counter[Screened],
    quiet: bool,
) -> None:
    holders: dict[int, list[int]] = collections.defaultdict(list)
    contradicted: dict[Screened, list[Screened]] = collections.defaultdict(list)
    for n, row in enumerate(tqdm(rows, desc="near", unit="row", disable=quiet)):
        met = sorted({kept for band in row.bands for kept in holders.get(band, ())})
        best = _nearest([rows[kept] for kept in met], row, judge, plan.near)
        if best is None:
            for band in row.bands:
                holders[band].append(n)
            continue
        kept, kind, score = best
        note = f"of {kept.record['id']}: {kind}, similarity {score:.2f}"
        row.against("near_duplicate", note, kept.seen)
        agreed[kept] += kind == "same"
        if kind == "conflict":
            contradicted[kept].append(row)
            given = f"{kept.answers[0][:40]} / {row.answers[0][:40]}"
            row.against("conflicting_answers", given, kept.seen)
    for row, against in contradicted.items():
        if plan.conflicts == "drop" or 1 + agreed[row] <= len(against):
            said = f"{len(against)} near duplicates give another answer"
            row.against("conflicting_answers", said, against[0].seen)


def _nearest(
    candidates: Sequence[Screened],
    row: Screened,
    judge: AnswerJudge,
    near: Near,
) -> tuple[Screened, str, float] | None:
    best = None
    for kept in candidates:
        found = relation(
            (kept.problem, kept.answers),
            (row.problem, row.answers),
            near,
            judge.equal,
        )
        if found and (best is None or found[1] > best[2]):
            best = (kept, *found)
    return best


def band_hashes(text: str) -> list[int]:
    """64-bit hashes of the bands of the text's MinHash signature, `[BANDS]`.

    Two texts are worth comparing when any of their hashes agree.
    """
    sketch = MinHash(num_perm=BANDS * ROWS, hashfunc=zlib.crc32)
    sketch.update_batch(s.encode() for s in shingles(skeleton(text)))
    words = np.asarray(sketch.hashvalues, np.uint64).reshape(BANDS, ROWS)
    mixed = np.arange(BANDS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for column in words.T:
        mixed = (mixed ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed.astype(np.int64).tolist()


def similarity(left: str, right: str) -> float:
    """Jaccard similarity of the texts' 3-grams, in the view where they are nearer."""
    return max(map(jaccard, views(left), views(right)))


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


def vote(classes: Sequence[Sequence[T]]) -> Sequence[T]:
    """The class of agreeing members with a strict majority, or an empty one."""
    total = sum(map(len, classes))
    for members in classes:
        if 2 * len(members) > total:
            return members
    return ()


def agreeing(
    members: Sequence[T],
    answers: Callable[[T], Sequence[str]],
    equal: Callable[[Sequence[str], Sequence[str]], bool],
) -> list[list[T]]:
    """Members in classes of equal answers, in order of first appearance."""
    classes: dict[Sequence[str], list[T]] = collections.OrderedDict()
    for member in members:
        mine = tuple(answers(member))
        for theirs, agreed in classes.items():
            if mine == theirs or equal(theirs, mine):
                agreed.append(member)
                break
        else:
            classes[mine] = [member]
    return list(classes.values())
