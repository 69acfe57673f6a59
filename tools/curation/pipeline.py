"""The driver: inspect, screen, decontaminate, deduplicate, level, write, report.

Screening runs in worker processes, chunk by chunk, each chunk committed to the store
before the next; what needs to see every row (boilerplate 13-grams, duplicates) then
runs over the store. Killed at any point and started again, a run goes on from its last
commit and writes the same bytes.
"""

import dataclasses
import hashlib
import json
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from rl import verifier
from rl.files import sha256
from tools.curation.answers import AnswerJudge
from tools.curation.plan import Plan
from tools.curation.resolve import decontaminate, drop_exact, drop_near, level_scale
from tools.curation.screen import make_screen
from tools.curation.screening import screen_all
from tools.curation.sources import Inspected, inspect
from tools.curation.store import Store
from tools.curation.writing import write


def curate(plan: Plan, out: pathlib.Path, *, quiet: bool = False) -> dict[str, Any]:
    """Runs a plan and writes its outputs into `out`.

    Returns:
      The summary, as in summary.json.

    Raises:
      ValueError: a source is bad; nothing was written.
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
            screen_all(plan, inspected, store, judge, quiet)
            scale = level_scale(plan, store)
            decontaminate(plan, store, judge)
            drop_exact(plan, store, judge, scale)
            drop_near(plan, store, judge, scale, quiet)
        summary = write(plan, inspected, store, scale, fingerprint, out, quiet)
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
            sha256(out / name) == digest for name, digest in summary["outputs"].items()
        )
    except (OSError, ValueError, KeyError):
        return None
    return summary if same else None
