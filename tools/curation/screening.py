"""Screening all rows in worker processes, each kept on disk as soon as it is judged."""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import pathlib
import threading
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from rl.files import Rows, read_rows
from rl.hosts.stopping import blocked
from tools.curation.answers import AnswerJudge
from tools.curation.plan import Plan
from tools.curation.row import Row, Screened
from tools.curation.screen import Screen
from tools.curation.sources import Inspected, Source, read

CHUNK = 500

# Set once in each worker, so that a chunk carries its rows and nothing else.
_screen: Screen


def screen_all(
    plan: Plan,
    inspected: Sequence[Inspected],
    path: pathlib.Path,
    judge: AnswerJudge,
    quiet: bool,
) -> list[Screened]:
    """All rows of the plan's sources, in their order.

    Args:
      plan: what is screened, and how.
      inspected: what its sources hold.
      path: where screened rows are kept; those that lie there are not screened again.
      judge: says which answers can serve as golds.
      quiet: without a bar of progress.
    """
    try:
        screened = [Screened(**row) for _, row in read_rows(path, appended=True)]
    except ValueError:  # a machine that stopped in mid-write; all is screened again
        path.unlink()
        screened = []
    rows = _rows_from(plan.sources, inspected, len(screened))
    chunks = iter(lambda: list(itertools.islice(rows, CHUNK)), [])
    total = sum(i.rows for i in inspected)
    with (
        tqdm(total=total, desc="screening", unit="row", disable=quiet) as bar,
        concurrent.futures.ProcessPoolExecutor(
            plan.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(plan.screen,),
        ) as pool,
        contextlib.closing(Rows(path)) as kept,
    ):
        bar.update(len(screened))
        # A bounded number of chunks in flight bounds memory.
        with blocked():  # each of the first chunks starts a worker
            waiting = [
                pool.submit(_screen_chunk, chunk)
                for chunk in itertools.islice(chunks, 2 * plan.workers)
            ]
        while waiting:
            found = waiting.pop(0).result()
            waiting += [
                pool.submit(_screen_chunk, chunk)
                for chunk in itertools.islice(chunks, 1)
            ]
            _judge_answers(found, judge)
            kept.write(*map(dataclasses.asdict, found))
            screened += found
            bar.update(len(found))
    return screened


def _judge_answers(rows: Sequence[Screened], judge: AnswerJudge) -> None:
    given = [(row, gold) for row in rows if row.survives for gold in row.answers]
    faults = judge.faults([gold for _, gold in given])
    for (row, _), fault in zip(given, faults, strict=True):
        if fault is not None:
            row.reasons.setdefault("unverifiable_answer", fault)


def _rows_from(
    sources: Sequence[Source], inspected: Sequence[Inspected], start: int
) -> Iterator[Row]:
    for source, held in zip(sources, inspected, strict=True):
        yield from read(source, min(start, held.rows))
        start = max(0, start - held.rows)


def _start_worker(screen: Screen) -> None:
    global _screen
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _screen = screen


def _leave_with_parent() -> None:
    """A parent that was killed cannot end its children: they wait for its end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _screen_chunk(rows: list[Row]) -> list[Screened]:
    return [_screen(row) for row in rows]
