"""The driver: inspect, screen, decontaminate, deduplicate, level, write, report.

Screening runs in worker processes, chunk by chunk, each chunk committed to the store
before the next; what needs to see every row (boilerplate 13-grams, duplicates) then
runs over the store. Killed at any point and started again, a run goes on from its last
commit and writes the same bytes.
"""

import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import multiprocessing
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from rl import verifier
from rl.curation import duplicates, levels
from rl.curation.answers import AnswerJudge
from rl.curation.decontaminate import EvaluationIndex, boilerplate
from rl.curation.report import Report, Steps, write_report
from rl.curation.row import Row
from rl.curation.screen import Screen, make_screen
from rl.curation.sources import Inspected, Source, inspect, read
from rl.curation.store import Entry, Store
from rl.curation.text import exact_key

CHUNK = 500
OUTPUTS = ("problems.jsonl", "dropped.jsonl", "report.md", "report.html")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does; equal plans over equal files give equal bytes.

    Attributes:
      sources: where rows come from; earlier ones win among duplicates.
      evaluation: id -> text of the problems that must not be trained on.
      screen: keyword arguments of `make_screen`.
      near: thresholds of near duplicates: `threshold`, `same_answer_threshold`,
        `conflict_threshold`, and `contamination_threshold` against evaluation.
      ngram: words in a run that contaminates.
      ngram_max_problems: a run found in more problems than this is boilerplate.
      conflicts: "majority" keeps the answer most copies give, "drop" drops them all.
      levels: the scale that levels are kept on; "auto" takes the most frequent,
        "none" keeps no level.
      unlevelled: "keep" or "drop" rows without a level on that scale.
      answer_timeout: seconds that one answer may take to verify.
      workers: processes.
    """

    sources: Sequence[Source]
    evaluation: Mapping[str, str]
    screen: Mapping[str, Any]
    near: Mapping[str, float]
    ngram: int
    ngram_max_problems: int
    conflicts: str
    levels: str
    unlevelled: str
    answer_timeout: float
    workers: int


def curate(plan: Plan, out: pathlib.Path, *, quiet: bool = False) -> dict[str, Any]:
    """Runs a plan and writes its outputs into `out`.

    Returns:
      The summary, as in summary.json.

    Raises:
      SourceError: a source is bad; nothing was written.
    """
    make_screen(**plan.screen)
    inspected = [
        inspect(source)
        for source in tqdm(plan.sources, "reading", unit="file", disable=quiet)
    ]
    fingerprint = _fingerprint(plan, inspected)
    done = _finished(out, fingerprint)
    work = out / ".work"
    if done is not None:
        shutil.rmtree(work, ignore_errors=True)
        return done
    store = Store(work / "rows.sqlite")
    try:
        if store.get("fingerprint") != fingerprint:
            store.close()
            shutil.rmtree(work)
            store = Store(work / "rows.sqlite")
            with store.transaction():
                store.put("fingerprint", fingerprint)
        with AnswerJudge(plan.workers, plan.answer_timeout) as judge:
            _screen_all(plan, inspected, store, judge, quiet)
            scale = _scale(plan, store)
            _decontaminate(plan, store)
            _drop_exact(plan, store, judge, scale)
            _drop_near(plan, store, judge, scale, quiet)
        summary = _write(plan, inspected, store, scale, fingerprint, out, quiet)
    finally:
        store.close()
    shutil.rmtree(work)
    return summary


def _fingerprint(plan: Plan, inspected: Sequence[Inspected]) -> str:
    code = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    options = dataclasses.asdict(plan) | {
        "sources": [
            (source.name, dict(source.fields), source.level_source)
            for source in plan.sources
        ],
        "workers": None,
        "files": [dataclasses.asdict(i) for i in inspected],
        "code": code.hexdigest(),
        "verifier": verifier.VERSION,
    }
    text = json.dumps(options, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _finished(out: pathlib.Path, fingerprint: str) -> dict[str, Any] | None:
    try:
        summary = json.loads((out / "summary.json").read_text())
        same = summary["fingerprint"] == fingerprint and all(
            _sha256(out / name) == digest for name, digest in summary["outputs"].items()
        )
    except (OSError, ValueError, KeyError):
        return None
    return summary if same else None


# -- screening ---------------------------------------------------------------------

_screen: Screen
_index: EvaluationIndex


def _start_worker(options: dict, evaluation: dict, threshold: float, ngram: int):
    global _screen, _index
    _screen = make_screen(**options)
    _index = EvaluationIndex(evaluation, threshold=threshold, ngram=ngram)


def _screen_chunk(rows: list[Row]) -> list[tuple[Entry, dict[str, str]]]:
    return [_screen_row(row) for row in rows]


def _screen_row(row: Row) -> tuple[Entry, dict[str, str]]:
    screened = _screen(row)
    row = screened.row
    overlap = dataclasses.asdict(_index.overlap(row.problem))
    bands = np.array(duplicates.band_hashes(row.problem), np.int64)
    key = hashlib.blake2b(exact_key(row.problem).encode(), digest_size=16)
    entry = Entry(
        id=row.id,
        key=key.digest(),
        level_source=row.level_source,
        record=json.dumps(row.record(), ensure_ascii=False),
        reasons="",
        repairs=json.dumps(screened.repairs),
        overlap=json.dumps({k: v for k, v in overlap.items() if v}),
        bands=b"" if screened.reasons else bands.tobytes(),
    )
    return entry, dict(screened.reasons)


def _screen_all(
    plan: Plan,
    inspected: Sequence[Inspected],
    store: Store,
    judge: AnswerJudge,
    quiet: bool,
) -> None:
    done = int(store.get("screened") or 0)
    total = sum(i.rows for i in inspected)
    if done == total:
        return
    bar = tqdm(total=total, initial=done, desc="screening", unit="row", disable=quiet)
    chunks = _chunks(_rows_from(plan.sources, inspected, done))
    arguments = (
        dict(plan.screen),
        dict(plan.evaluation),
        plan.near["contamination_threshold"],
        plan.ngram,
    )
    with (
        concurrent.futures.ProcessPoolExecutor(
            plan.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=arguments,
        ) as pool,
        bar,
    ):
        # A bounded number of chunks in flight bounds memory.
        waiting = [
            pool.submit(_screen_chunk, chunk)
            for chunk in itertools.islice(chunks, 2 * plan.workers)
        ]
        while waiting:
            results = waiting.pop(0).result()
            waiting += [
                pool.submit(_screen_chunk, chunk)
                for chunk in itertools.islice(chunks, 1)
            ]
            entries = _with_verified_answers(results, judge)
            with store.transaction():
                store.add(done, entries)
                done += len(entries)
                store.put("screened", str(done))
            bar.update(len(entries))
    with store.transaction():
        store.index()


def _with_verified_answers(
    results: list[tuple[Entry, dict[str, str]]], judge: AnswerJudge
) -> list[Entry]:
    answers = [
        json.loads(entry.record)["answers"] if not reasons else []
        for entry, reasons in results
    ]
    faults = judge.faults(answer for row in answers for answer in row)
    entries = []
    for (entry, reasons), row in zip(results, answers, strict=True):
        for answer in row:
            if faults[answer] is not None:
                reasons["unverifiable_answer"] = f"{answer[:80]}: {faults[answer]}"
        entries.append(
            dataclasses.replace(
                entry,
                reasons=json.dumps(reasons, ensure_ascii=False),
                bands=b"" if reasons else entry.bands,
            )
        )
    return entries


def _rows_from(
    sources: Sequence[Source], inspected: Sequence[Inspected], start: int
) -> Iterator[Row]:
    for source, seen in zip(sources, inspected, strict=True):
        yield from read(source, min(start, seen.rows))
        start = max(0, start - seen.rows)


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while chunk := list(itertools.islice(rows, CHUNK)):
        yield chunk


# -- what needs to see every row -----------------------------------------------------


def _scale(plan: Plan, store: Store) -> str | None:
    if plan.levels == "none":
        return None
    if plan.levels != "auto":
        return plan.levels
    scales = store.scales()
    return scales[0][0] if scales else None


def _decontaminate(plan: Plan, store: Store) -> None:
    if store.get("decontaminated"):
        return
    common = boilerplate(
        (tuple(json.loads(o).get("ngrams", ())) for o in store.first_overlaps()),
        plan.ngram_max_problems,
    )
    index = EvaluationIndex(
        plan.evaluation,
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
        store.put("decontaminated", "1")


def _drop_exact(
    plan: Plan, store: Store, judge: AnswerJudge, scale: str | None
) -> None:
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


def _drop_near(
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


# -- writing -------------------------------------------------------------------------


def _write(
    plan: Plan,
    inspected: Sequence[Inspected],
    store: Store,
    scale: str | None,
    fingerprint: str,
    out: pathlib.Path,
    quiet: bool,
) -> dict[str, Any]:
    steps = _steps(make_screen(**plan.screen))
    report = Report(steps)
    temporary = {name: out / ".work" / name for name in OUTPUTS}
    total = int(store.get("screened") or 0)
    with (
        temporary["problems.jsonl"].open("w", encoding="utf-8") as kept,
        temporary["dropped.jsonl"].open("w", encoding="utf-8") as dropped,
        tqdm(total=total, desc="writing", unit="row", disable=quiet) as bar,
    ):
        for n, name, text, reasons, late, repairs in store.all():
            record = json.loads(text)
            del record["solution"]
            evidence = reasons | {
                reason: f"of {store.id_of(other)}" + (f": {note}" if note else "")
                if other is not None
                else note
                for reason, (note, other) in late.items()
            }
            record = levels.on_one_scale(record, scale)
            if not evidence and record["level"] is None and plan.unlevelled == "drop":
                evidence = {"no_level": f"no level on the scale {scale}"}
            if not store.is_first_of_its_id(n, name):
                record["id"] = f"{name}~{n}"
            if repairs:
                record["meta"]["repairs"] = repairs
            if evidence:
                ordered = {r: evidence[r] for r in steps.reasons if r in evidence}
                record = _dropped(record, ordered)
                report.add_dropped(record, ordered)
                dropped.write(_line(record))
            else:
                report.add_kept(record)
                kept.write(_line(record))
            bar.update()
    facts = {
        "fingerprint": fingerprint,
        "verifier": verifier.VERSION,
        "level_scale": scale,
        "evaluation_problems": len(plan.evaluation),
        "sources": [dataclasses.asdict(i) for i in inspected],
        "options": {
            "screen": dict(plan.screen),
            "near": dict(plan.near),
            "ngram": plan.ngram,
            "ngram_max_problems": plan.ngram_max_problems,
            "conflicts": plan.conflicts,
            "unlevelled": plan.unlevelled,
        },
        "sha256": {
            name: _sha256(temporary[name])
            for name in ("problems.jsonl", "dropped.jsonl")
        },
    }
    write_report(report, facts, temporary["report.md"], temporary["report.html"])
    summary = facts | report.counts()
    summary["outputs"] = {name: _sha256(path) for name, path in temporary.items()}
    for name, path in temporary.items():
        os.replace(path, out / name)
    written = out / ".work" / "summary.json"
    written.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    os.replace(written, out / "summary.json")
    return summary


def _steps(screen: Screen) -> Steps:
    table = {
        step: {name: (check.__doc__ or "").strip() for name, check in checks.items()}
        for step, checks in screen.steps.items()
    }
    table["verifier"] = {
        "unverifiable_answer": "The verifier cannot parse it, or it does not equal "
        "itself."
    }
    table["decontamination"] = {
        "evaluation_exact": "An evaluation problem, word for word.",
        "evaluation_near": "An evaluation problem, nearly word for word.",
        "evaluation_ngram": "A long run of words in common with an evaluation problem.",
    }
    table["duplicates"] = {
        "conflicting_answers": "One problem, two answers, no majority.",
        "exact_duplicate": "The same text as another row.",
        "near_duplicate": "The same problem reworded, or its words with other numbers.",
    }
    table["levels"] = {"no_level": "Without a level on the run's scale."}
    return Steps(table)


def _dropped(record: dict[str, Any], evidence: Mapping[str, str]) -> dict[str, Any]:
    """`reason` lists all that apply; the row is counted under the first."""
    return {
        "id": record["id"],
        "source": record["source"],
        "reason": ", ".join(evidence),
        "evidence": dict(evidence),
        "problem": record["problem"],
        "answer": record["answer"],
    }


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def _sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
