"""Screening all rows in worker processes, each kept on disk as soon as it is judged."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
import os
import pathlib
import threading
from collections.abc import Sequence

from tqdm import tqdm

from rl.files import Rows, read_rows
from rl.hosts.stopping import blocked
from tools.curation.answers import AnswerJudge
from tools.curation.plan import Plan
from tools.curation.row import Row
from tools.curation.screen import Screen
from tools.curation.sources import read

CHUNK = 500


def screen_all(
    plan: Plan,
    total: int,
    path: pathlib.Path,
    judge: AnswerJudge,
    quiet: bool,
) -> list[Row]:
    """All rows of the plan's sources, in their order.

    Args:
      plan: what is screened, and how.
      total: of rows in its sources.
      path: where screened rows are kept; those that lie there are not screened again.
      judge: says which answers can serve as golds.
      quiet: without a bar of progress.
    """
    try:
        screened = [Row(**row) for _, row in read_rows(path, appended=True)]
    except ValueError:  # a machine that stopped in mid-write; all is screened again
        path.unlink()
        screened = []
    rows = itertools.chain.from_iterable(map(read, plan.sources))
    rows = itertools.islice(rows, len(screened), None)
    chunks = iter(lambda: list(itertools.islice(rows, CHUNK)), [])
    with (
        tqdm(
            total=total,
            initial=len(screened),
            desc="screening",
            unit="row",
            disable=quiet,
        ) as bar,
        concurrent.futures.ProcessPoolExecutor(
            plan.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_leave_with_parent,
        ) as pool,
        contextlib.closing(Rows(path)) as kept,
    ):
        submit = functools.partial(pool.submit, _screen_chunk, plan.screen)
        # A bounded number of chunks in flight bounds memory.
        with blocked():  # each of the first chunks starts a worker
            waiting = [*map(submit, itertools.islice(chunks, 2 * plan.workers))]
        while waiting:
            found = waiting.pop(0).result()
            waiting += map(submit, itertools.islice(chunks, 1))
            _judge_answers(found, judge)
            kept.write(*map(dataclasses.asdict, found))
            screened += found
            bar.update(len(found))
    return screened


def _judge_answers(rows: Sequence[Row], judge: AnswerJudge) -> None:
    given = [(row, gold) for row in rows if row.survives for gold in row.answers]
    faults = judge.faults([gold for _, gold in given])
    for (row, _), fault in zip(given, faults, strict=True):
        if fault is not None:
            row.reasons.setdefault("unverifiable_answer", fault)


def _leave_with_parent() -> None:
    """A parent that was killed cannot end its children: they wait for its end."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _screen_chunk(screen: Screen, rows: list[Row]) -> list[Row]:
    return [screen(row) for row in rows]
