"""Keeps at most one row of each group of similar problems."""

import collections
import dataclasses
import itertools
from collections.abc import Sequence

from rl.problems.audit import agree
from rl.progress import each
from tools.curation.evidence import Evidence
from tools.curation.levels import gradings
from tools.curation.row import Row
from tools.curation.text import NEAR, numbers, similarity

# Smallest similarities of duplicates with equal numbers: if answers are equal, and for
# answers to contradict each other.
_SAME_ANSWER, _CONFLICT = 0.6, 0.9
# A row, its kind ("exact", or from `relation`), and its similarity to the first row.
Copy = tuple[Row, str, float]


def drop_duplicates(
    rows: Sequence[Row], scale: str | None, min_evidence: float | None
) -> None:
    """Keeps at most one row of each group of similar problems.

    Exact duplicates are compared as one row with all of their answers. They join the
    group with the most similar first row. If no first row is a near duplicate (see
    `relation`), they start a new group.

    The kept row is the first that the grader `scale` graded, or else the first row. If
    copies have different answers, and evidence of strength `min_evidence` for exactly
    one of them, the first row with this answer is kept. Otherwise none is kept. If
    `min_evidence` is None, evidence is ignored.
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
            if (found := relation(firsts[n], merged))
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
        _drop_copies(group, min_evidence)


def _drop_copies(group: Sequence[Copy], min_evidence: float | None) -> None:
    """Drops all rows of a group, or all but one.

    A kept row gets the evidence of all copies with its answer. Variants are not copies,
    and are dropped.
    """
    copies = [row for row, kind, _ in group if kind != "variant"]
    classes = agreeing(copies)
    stay = classes[0] if len(classes) == 1 else []
    if min_evidence is not None:
        solved = [c for c in classes if any(r.strength >= min_evidence for r in c)]
        stay = solved[0] if len(solved) == 1 else stay
    original = stay[0] if stay else copies[0]
    original.evidence = _shared_evidence(stay or [original])
    given = " / ".join(some[0].answers[0][:40] for some in classes)
    for row in copies:
        if row not in stay:
            row.reasons["conflicting_answers"] = given
    for row, kind, score in group:
        if row is not original and kind == "exact":
            row.reasons["exact_duplicate"] = f"of {original.id}"
        elif row is not original:
            how = f"of {original.id}: {kind}, similarity {score:.2f}"
            row.reasons["near_duplicate"] = how


def _shared_evidence(copies: Sequence[Row]) -> tuple[Evidence, ...]:
    """Returns the evidence of all copies, which have the same answer.

    If the first copy has an origin, and others have another one, adds an "agreement".
    """
    found: dict[tuple[str, str], Evidence] = {}
    for one in itertools.chain(*(row.evidence for row in copies)):
        found.setdefault((one.kind, one.by), one)
    own = copies[0].origin
    origins = {row.origin: row.id for row in copies if row.origin}
    if own and len(origins) > 1:
        n, by = len(origins), " and ".join(sorted(origins))
        others = ", ".join(id for name, id in origins.items() if name != own)
        found["agreement", by] = Evidence(
            kind="agreement", by=by, correct=n, samples=n, source=others
        )
    return tuple(found.values())


def relation(kept: Row, other: Row) -> tuple[str, float] | None:
    """Returns the kind and similarity of near duplicates, or None for other rows.

    Each kind has a minimum similarity:
      "same" (0.6): equal numbers and equal answers.
      "conflict" (0.9): equal numbers, but different answers.
      "variant" (0.8): other rows with different numbers or answers.
    """
    score = similarity(kept.problem, other.problem)
    if score < _SAME_ANSWER:
        return None
    if numbers(kept.problem) != numbers(other.problem):
        return ("variant", score) if score >= NEAR else None
    if agree(kept.answers, other.answers):
        return "same", score
    if score < NEAR:
        return None
    return ("conflict" if score >= _CONFLICT else "variant"), score


def agreeing(rows: Sequence[Row]) -> list[list[Row]]:
    """Groups rows with equal answers; groups are in the order of their first rows."""
    classes: list[list[Row]] = []
    for row in rows:
        same = (some for some in classes if agree(some[0].answers, row.answers))
        if (found := next(same, None)) is None:
            classes.append(found := [])
        found.append(row)
    return classes
