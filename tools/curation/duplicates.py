"""Keeps at most one row of each group of similar problems."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Sequence

from rl.progress import each
from tools.curation.answers import AnswerJudge
from tools.curation.evidence import Evidence
from tools.curation.levels import gradings
from tools.curation.plan import Near, Plan
from tools.curation.row import Row
from tools.curation.text import numbers, similarity

Equal = Callable[[Sequence[str], Sequence[str]], bool]
# A row, its kind ("exact", or from `relation`), and its similarity to the first row.
Copy = tuple[Row, str, float]


def drop_duplicates(
    plan: Plan, rows: Sequence[Row], judge: AnswerJudge, scale: str | None
) -> None:
    """Keeps at most one row of each group of similar problems.

    Exact duplicates are compared as one row with all of their answers. They join the
    group with the most similar first row. If no first row is a near duplicate (see
    `relation`), they start a new group.

    The kept row is the first that the grader `scale` graded, or else the first row. If
    copies have different answers, at most one row is kept, depending on the evidence.
    """
    problems: dict[str, list[Row]] = collections.defaultdict(list)
    for row in sorted(rows, key=lambda row: scale not in dict(gradings(row))):
        if row.survives:
            problems[row.key].append(row)
    groups: list[list[Copy]] = []
    firsts: list[Row] = []
    met: dict[int, list[int]] = collections.defaultdict(list)  # band -> groups
    for same in each(problems.values(), "duplicates", "problems"):
        given = dict.fromkeys(answer for row in same for answer in row.answers)
        merged = dataclasses.replace(same[0], answers=tuple(given))
        near = [
            (n, *found)
            for n in sorted({n for band in merged.bands for n in met.get(band, ())})
            if (found := relation(firsts[n], merged, plan.near, judge.equal))
        ]
        if near:
            n, kind, score = max(near, key=lambda found: found[2])
        else:
            n, kind, score = len(groups), "exact", 1.0
            groups.append([])
            firsts.append(merged)
            for band in merged.bands:
                met[band].append(n)
        groups[n] += [(row, kind, score) for row in same]
    for group in groups:
        _drop_copies(group, judge, plan)


def _drop_copies(group: Sequence[Copy], judge: AnswerJudge, plan: Plan) -> None:
    """Drops all rows of a group, or all but one.

    If all copies have the same answer, the first row is kept. If answers differ, and
    exactly one has enough evidence, the first row with this answer is kept, unless
    `plan.evidence` is "off". Otherwise no row is kept. A kept row gets the evidence of
    all copies with its answer. Variants are dropped, and are not copies here.
    """
    copies = [row for row, kind, _ in group if kind != "variant"]
    classes = agreeing(copies, judge.equal)
    solved = [
        some
        for some in classes
        if any(row.strength >= plan.min_evidence for row in some)
    ]
    stay = classes[0] if len(classes) == 1 else []
    if plan.evidence != "off" and len(solved) == 1:
        stay = solved[0]
    original = stay[0] if stay else copies[0]
    original.evidence = _shared_evidence(original, stay)
    given = " / ".join(some[0].answers[0][:40] for some in classes)
    for row in copies:
        if row not in stay:
            other = next(some[0] for some in classes if row not in some)
            row.drop_for("conflicting_answers", given, other)
    for row, kind, score in group:
        if row is not original and kind == "exact":
            row.drop_for("exact_duplicate", f"of {original.id}", original)
        elif row is not original:
            how = f"of {original.id}: {kind}, similarity {score:.2f}"
            row.drop_for("near_duplicate", how, original)


def _shared_evidence(row: Row, copies: Sequence[Row]) -> tuple[Evidence, ...]:
    """Returns the evidence of `row` and of `copies`, which have the same answer.

    If `row` has an origin, and the copies have several, adds an "agreement" entry.
    """
    found: dict[tuple[str, str], Evidence] = {}
    for one in itertools.chain(row.evidence, *(copy.evidence for copy in copies)):
        found.setdefault((one.kind, one.by), one)
    origins = {copy.origin: copy.id for copy in copies if copy.origin}
    if row.origin and len(origins) > 1:
        n, by = len(origins), " and ".join(sorted(origins))
        others = ", ".join(id for name, id in origins.items() if name != row.origin)
        found["agreement", by] = Evidence(
            kind="agreement", by=by, correct=n, samples=n, source=others
        )
    return tuple(found.values())


def relation(
    kept: Row, other: Row, near: Near, equal: Equal
) -> tuple[str, float] | None:
    """Returns the kind and similarity of near duplicates, or None for other rows.

    Each kind has a minimum similarity, a field of `near`:
      "same" (`same_answer_threshold`): equal numbers and equal answers.
      "conflict" (`conflict_threshold`): equal numbers, but different answers.
      "variant" (`threshold`): other rows with different numbers or answers.
    """
    score = similarity(kept.problem, other.problem)
    if score < near.same_answer_threshold:
        return None
    if numbers(kept.problem) != numbers(other.problem):
        return ("variant", score) if score >= near.threshold else None
    if equal(kept.answers, other.answers):
        return "same", score
    if score < near.threshold:
        return None
    return ("conflict" if score >= near.conflict_threshold else "variant"), score


def agreeing(rows: Sequence[Row], equal: Equal) -> list[list[Row]]:
    """Groups rows with equal answers; groups are in the order of their first rows."""
    classes: list[list[Row]] = []
    for row in rows:
        same = (some for some in classes if equal(some[0].answers, row.answers))
        if (found := next(same, None)) is None:
            classes.append(found := [])
        found.append(row)
    return classes
