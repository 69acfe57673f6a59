"""Screening all rows into the store, in worker processes, chunk by chunk."""

import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence

import numpy as np
from tqdm import tqdm

from rl.hosts.stopping import blocked
from tools.curation import duplicates
from tools.curation.answers import AnswerJudge
from tools.curation.decontaminate import EvaluationIndex
from tools.curation.plan import Plan
from tools.curation.row import Row
from tools.curation.screen import Screen, make_screen
from tools.curation.sources import Inspected, Source, read
from tools.curation.store import Entry, Store
from tools.curation.text import exact_key

CHUNK = 500

# Set once in each worker, so that a chunk carries its rows and nothing else.
_screen: Screen
_index: EvaluationIndex


def _start_worker(options: dict, evaluation: dict, threshold: float, ngram: int):
    global _screen, _index
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _screen = make_screen(**options)
    _index = EvaluationIndex(evaluation, threshold=threshold, ngram=ngram)


def _leave_with_parent() -> None:
    """A parent that was killed cannot end its children: they wait for its end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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


def screen_all(
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
        plan.evaluation_texts,
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
        with blocked():  # each of the first chunks starts a worker
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
