"""Runs the steps: inspect, screen, decontaminate, deduplicate, level, report.

Screening, which takes most of the time, runs in worker processes and keeps its rows on
disk; what needs to see every row has all in memory, some seven kilobytes a row. Killed
at any point and started again, a run goes on with it and writes the same bytes.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

from rl import files, verifier
from rl.progress import Watch, each, watch
from rl.verifier.pool import Lost, Workers
from tools.curation.answers import AnswerJudge
from tools.curation.decontaminate import decontaminate
from tools.curation.duplicates import drop_duplicates
from tools.curation.levels import assign_levels, level_scale
from tools.curation.plan import Plan
from tools.curation.readings import by_source
from tools.curation.report import Section, Steps, count, markdown, page, sections
from tools.curation.row import Row
from tools.curation.sources import inspect, read

CHUNK = 500  # rows that are screened between two writes to disk
_ROW_SECONDS = 60.0  # of screening, which takes some milliseconds
_LATER_STEPS: Steps = {
    "decontamination": {
        "evaluation_near": "An evaluation problem, word for word or nearly.",
        "evaluation_ngram": "A long run of words in common with one.",
        "evaluation_reworded": "One in other words, with its answer.",
    },
    "duplicates": {
        "conflicting_answers": "One problem, two answers, no majority.",
        "exact_duplicate": "The same text as another row.",
        "near_duplicate": "The same problem reworded, or with other numbers.",
    },
    "evidence": {
        "no_evidence": "No solver that had no part in the gold arrived at it.",
    },
}


def curate(plan: Plan, out: pathlib.Path) -> dict[str, Any]:
    """Runs a plan and writes its outputs into `out`.

    Returns:
      The summary, as in summary.json.

    Raises:
      ValueError: a source is bad, and nothing was written; or a row's screening fails.
      BlockingIOError: another run is writing into `out`.
    """
    facts = _identity(plan, [*map(inspect, each(plan.sources, "reading", "files"))])
    with files.locked(out):
        work = out / ".work"
        summary = _finished(out, facts["fingerprint"])
        if summary is None:
            screened = work / f"{facts['fingerprint'][:16]}.jsonl"
            if not screened.exists():
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir(parents=True)
            total = sum(source["rows"] for source in facts["sources"])
            with watch("screening", total=total, unit="rows") as done:
                rows = _screened(plan, screened, done)
            scale = level_scale(plan.levels, rows)
            with AnswerJudge(plan.workers, plan.answer_timeout) as judge:
                decontaminate(plan, rows, judge)
                drop_duplicates(plan, rows, judge, scale)
            if plan.evidence == "required":
                _require_evidence(rows, plan.min_evidence)
            facts["level_scale"] = scale
            facts["linked_scales"] = assign_levels(rows, scale, plan.common_rows)
            summary = _write(out, facts, plan, rows)
        shutil.rmtree(work, ignore_errors=True)
    return summary


def _screened(plan: Plan, path: pathlib.Path, count: Watch) -> list[Row]:
    """Returns all rows in order; those stored at `path` are not screened again."""
    try:
        done = [Row(**row) for _, row in files.read_rows(path, appended=True)]
    except ValueError:  # a machine that stopped in mid-write; all is screened again
        path.unlink()
        done = []
    every = itertools.chain.from_iterable(map(read, plan.sources))
    rows = itertools.islice(every, len(done), None)
    options, function = dataclasses.astuple(plan.screen), "tools.curation.screen:Screen"
    with (
        Workers(plan.workers, _ROW_SECONDS, function, confined=False) as workers,
        contextlib.closing(files.Rows(path)) as kept,
    ):
        count.update(len(done))
        while chunk := list(itertools.islice(rows, CHUNK)):
            asked = [(options, [row]) for row in chunk]
            found = [row for (row,) in workers.map(asked, on_done=count.update)]
            for row, came in zip(found, chunk, strict=True):
                if isinstance(row, Lost):
                    raise ValueError(f"row {came.id!r}: its screening {row.reason}")
            kept.write(*map(dataclasses.asdict, found))
            done += found
    return done


def _require_evidence(rows: Sequence[Row], least: float) -> None:
    """Drops rows without evidence, or with less than `least`."""
    for row in rows:
        if row.survives and row.strength < least:
            found = (f"{one.by}: {one.correct}/{one.samples}" for one in row.evidence)
            row.reasons["no_evidence"] = ", ".join(found) or "none"


def _write(
    out: pathlib.Path, facts: dict[str, Any], plan: Plan, rows: Sequence[Row]
) -> dict[str, Any]:
    """Writes the outputs; summary.json, which marks them complete, comes last."""
    ids: set[str] = set()
    for n, row in enumerate(rows):
        if row.id in ids:
            row.id += f"~{n}"
        ids.add(row.id)
    kept = [row.record() for row in rows if row.survives]
    for record in kept:
        del record["solution"]
    dropped = [
        {
            "id": row.id,
            "source": row.source,
            "reason": ", ".join(row.reasons),
            "details": row.reasons,
            "evidence": [dataclasses.asdict(one) for one in row.evidence],
            "problem": row.problem,
            "answer": row.answer or None,
        }
        for row in rows
        if row.reasons
    ]
    summary = facts | count(rows, {**plan.screen.meanings, **_LATER_STEPS})
    evidence = by_source(rows, plan.min_evidence, plan.readings)
    summary["evidence_by_source"] = evidence
    tables = list(sections(summary))
    tables.insert(1, Section("Evidence by source", evidence))
    outputs = {
        "problems.jsonl": "".join(map(files.json_line, kept)),
        "dropped.jsonl": "".join(map(files.json_line, dropped)),
        "report.md": markdown(tables),
        "report.html": page(tables, rows),
    }
    for name, text in outputs.items():
        files.replace(out / name, text)
    summary["outputs"] = {name: files.sha256(out / name) for name in outputs}
    files.replace_json(out / "summary.json", summary)
    return summary


def _identity(plan: Plan, inspected: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns what the outputs depend on, and a hash of it, the code and the data."""
    options = dataclasses.asdict(plan)
    sources, evaluation = options.pop("sources"), options.pop("evaluation")
    del options["workers"]
    facts = {
        "verifier": verifier.VERSION,
        "evaluation_problems": len(evaluation),
        "sources": inspected,
        "options": options,
    }
    code = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    asked = ("fields", "level_source", "evidence", "origin")
    read = [[source[name] for name in asked] for source in sources]
    text = json.dumps([facts, read, evaluation], sort_keys=True, default=str)
    code.update(text.encode())
    return {"fingerprint": code.hexdigest()} | facts


def _finished(out: pathlib.Path, fingerprint: str) -> dict[str, Any] | None:
    """Returns the summary of such a run if its outputs are still there."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        summary = json.loads((out / "summary.json").read_text())
        outputs = {name: files.sha256(out / name) for name in summary["outputs"]}
        if (fingerprint, outputs) == (summary["fingerprint"], summary["outputs"]):
            return summary
    return None
