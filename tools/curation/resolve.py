"""Decisions that need every row: contamination, duplicates and their answers.

Each is one or more transactions over the store and remembers that it is done.
"""

import itertools
import json
from collections.abc import Mapping

from tqdm import tqdm

from tools.curation import duplicates
from tools.curation.answers import AnswerJudge
from tools.curation.decontaminate import EvaluationIndex, boilerplate
from tools.curation.plan import Plan
from tools.curation.retrieval import Retrieval
from tools.curation.store import Store

CHUNK = 500


def level_scale(plan: Plan, store: Store) -> str | None:
    if plan.levels == "none":
        return None
    if plan.levels != "auto":
        return plan.levels
    scales = store.scales()
    return scales[0][0] if scales else None


def decontaminate(plan: Plan, store: Store, judge: AnswerJudge) -> None:
    if store.get("decontaminated"):
        return
    common = boilerplate(
        (tuple(json.loads(o).get("ngrams", ())) for o in store.first_overlaps()),
        plan.ngram_max_problems,
    )
    index = EvaluationIndex(
        plan.evaluation_texts,
        threshold=plan.near["contamination_threshold"],
        ngram=plan.ngram,
    )
    with store.transaction():
        for n, text in store.overlaps():
            overlap = json.loads(text)
            runs = [key for key in overlap.get("ngrams", ()) if key not in common]
            if "exact" in overlap:
                store.drop(n, "evaluation_exact", ", ".join(overlap["exact"]))
            elif "near" in overlap:
                matches = [f"{name} ({score:.2f})" for name, score in overlap["near"]]
                store.drop(n, "evaluation_near", ", ".join(matches))
            elif runs:
                names = dict.fromkeys(itertools.chain(*map(index.holders, runs)))
                store.drop(n, "evaluation_ngram", ", ".join(list(names)[:3]))
        _drop_reworded(plan, store, judge)
        store.put("decontaminated", "1")


def _drop_reworded(plan: Plan, store: Store, judge: AnswerJudge) -> None:
    """Rows that ask an evaluation problem in other words and have its answer."""
    if not plan.evaluation:
        return
    alive = store.survivors(None)
    texts = (store.record(n)["problem"] for n in alive)
    index = Retrieval(plan.evaluation_texts, texts)
    for begin in range(0, len(alive), CHUNK):
        rows = [store.record(n) for n in alive[begin : begin + CHUNK]]
        matches = index.matches([row["problem"] for row in rows])
        equal = judge.equal_pairs(
            [
                (rows[match.row]["answers"], plan.evaluation[match.name].answers)
                for match in matches
            ]
        )
        for match, same in zip(matches, equal, strict=True):
            if same:
                score = f"words {match.words:.2f}, numbers {match.numbers:.2f}"
                of = f"{match.name} ({score})"
                store.drop(alive[begin + match.row], "evaluation_reworded", of)


def drop_exact(plan: Plan, store: Store, judge: AnswerJudge, scale: str | None) -> None:
    if store.get("exact"):
        return
    with store.transaction():
        for _, members in store.repeated():
            alive = [n for n in members if store.survives(n)]
            alive.sort(key=lambda n: (store.level_source(n) != scale, n))
            first, agreed = alive[:1], alive
            if len(alive) > 1:
                classes = duplicates.agreeing(
                    alive, lambda n: store.record(n)["answers"], judge.equal
                )
                if len(classes) > 1:
                    majority = plan.conflicts == "majority"
                    agreed = list(duplicates.vote(classes)) if majority else []
                    first = agreed[:1]
                    given = " / ".join(
                        store.record(c[0])["answers"][0][:40] for c in classes
                    )
                    for n in alive:
                        if n not in agreed:
                            store.drop(n, "conflicting_answers", given)
            # Where nothing survives, all but the first reading are still surplus.
            original = (first or members)[0]
            for n in members:
                if n != original:
                    store.drop(n, "exact_duplicate", "", original)
            if first:
                for n in agreed[1:]:
                    store.pair(first[0], n, "same", 1.0)
        store.put("exact", "1")


def drop_near(
    plan: Plan, store: Store, judge: AnswerJudge, scale: str | None, quiet: bool
) -> None:
    if store.get("near") == "done":
        return
    order = store.get("near_order")
    if order is None:
        with store.transaction():
            order = json.dumps(store.survivors(scale))
            store.put("near_order", order)
    waiting = json.loads(order)
    start = int(store.get("near") or 0)
    bar = tqdm(
        total=len(waiting), initial=start, desc="near", unit="row", disable=quiet
    )
    thresholds = {
        name: plan.near[name]
        for name in ("threshold", "same_answer_threshold", "conflict_threshold")
    }
    with bar:
        for begin in range(start, len(waiting), CHUNK):
            batch = waiting[begin : begin + CHUNK]
            with store.transaction():
                for n in batch:
                    _keep_or_drop(n, store, judge, thresholds)
                store.put("near", str(begin + len(batch)))
            bar.update(len(batch))
    with store.transaction():
        for kept, same, conflicts in store.contested():
            if plan.conflicts == "drop" or 1 + same <= conflicts:
                store.drop(
                    kept,
                    "conflicting_answers",
                    f"{conflicts} near duplicates give another answer",
                )
        store.put("near", "done")


def _keep_or_drop(
    n: int, store: Store, judge: AnswerJudge, thresholds: Mapping[str, float]
) -> None:
    record = store.record(n)
    hashes = store.band_hashes(n)
    best = None
    for kept in store.meet(hashes):
        other = store.record(kept)
        found = duplicates.relation(
            (other["problem"], other["answers"]),
            (record["problem"], record["answers"]),
            equal=judge.equal,
            **thresholds,
        )
        if found and (best is None or found[1] > best[2]):
            best = (kept, *found)
    if best is None:
        store.keep(n, hashes)
        return
    kept, kind, score = best
    store.pair(kept, n, kind, score)
    store.drop(n, "near_duplicate", f"{kind}, similarity {score:.2f}", kept)
    if kind == "conflict":
        other = store.record(kept)
        given = f"{other['answers'][0][:40]} / {record['answers'][0][:40]}"
        store.drop(n, "conflicting_answers", given)
