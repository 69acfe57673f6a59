"""Screening all rows in worker processes, each kept on disk as soon as it is judged."""

import contextlib
import dataclasses
import itertools
import pathlib

from tqdm import tqdm

from rl.files import Rows, read_rows
from rl.verifier.workers import Lost, Workers
from tools.curation.answers import AnswerJudge
from tools.curation.plan import Plan
from tools.curation.row import Row
from tools.curation.sources import read

CHUNK = 500
_SECONDS = 60.0  # for a row, which takes some milliseconds


def screen_all(
    plan: Plan, total: int, path: pathlib.Path, judge: AnswerJudge, quiet: bool
) -> list[Row]:
    """All rows of the plan's sources, in their order.

    Args:
      plan: what is screened, and how.
      total: of rows in its sources.
      path: where screened rows are kept; those that lie there are not screened again.
      judge: says which answers can serve as golds.
      quiet: without a bar of progress.

    Raises:
      ValueError: the screening of a row does not end, or fails twice.
    """
    try:
        screened = [Row(**row) for _, row in read_rows(path, appended=True)]
    except ValueError:  # a machine that stopped in mid-write; all is screened again
        path.unlink()
        screened = []
    rows = itertools.chain.from_iterable(map(read, plan.sources))
    rows = itertools.islice(rows, len(screened), None)
    bar = tqdm(desc="screening", total=total, unit="row", disable=quiet)
    with (
        bar,
        Workers(
            plan.workers, _SECONDS, "tools.curation.screen:given", confined=False
        ) as workers,
        contextlib.closing(Rows(path)) as kept,
    ):
        bar.update(len(screened))
        while chunk := list(itertools.islice(rows, CHUNK)):
            asked = [((plan.screen,), [row]) for row in chunk]
            found = [row for (row,) in workers.map(asked, on_done=bar.update)]
            for row, came in zip(found, chunk, strict=True):
                if isinstance(row, Lost):
                    raise ValueError(f"row {came.id!r}: its screening {row.reason}")
            given = [
                (row, gold) for row in found if row.survives for gold in row.answers
            ]
            faults = judge.faults([gold for _, gold in given])
            for (row, _), fault in zip(given, faults, strict=True):
                if fault is not None:
                    row.reasons.setdefault("unverifiable_answer", fault)
            kept.write(*map(dataclasses.asdict, found))
            screened += found
    return screened
