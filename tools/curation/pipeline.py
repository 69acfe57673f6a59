"""Runs curation. All rows are in memory, with about seven kilobytes per row."""

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

from rl import files, verifier
from rl.progress import each, watch
from rl.verifier.pool import Lost, Workers
from tools.curation import report
from tools.curation.answers import AnswerJudge
from tools.curation.decontaminate import decontaminate
from tools.curation.duplicates import drop_duplicates
from tools.curation.levels import assign_levels, level_scale
from tools.curation.plan import Plan
from tools.curation.row import Row
from tools.curation.sources import check_output, inspect, read
from tools.tables import markdown, page

_CHUNK = 2_000  # rows screened at a time; only their solutions are in memory
_ANSWER_SECONDS = 10.0  # time limit to compare two answers
_ROW_SECONDS = 60.0  # time limit to screen a row, which usually takes milliseconds
_LATER_STEPS: report.Steps = {
    "decontamination": {
        "evaluation_near": "The row equals or resembles an evaluation problem.",
        "evaluation_ngram": "It shares 13 successive words with an evaluation problem.",
        "evaluation_reworded": "It rewords an evaluation problem; answers are equal.",
    },
    "duplicates": {
        "conflicting_answers": "Copies of the problem have different answers.",
        "exact_duplicate": "Another row has the same text.",
        "near_duplicate": "Another row has a similar text.",
    },
    "evidence": {
        "no_evidence": "Too little evidence that independent solvers gave the gold."
    },
}


def curate(plan: Plan, out: pathlib.Path) -> dict[str, Any]:
    """Runs a plan, writes its outputs into `out` and returns the summary.

    Raises:
      ValueError: a source has a bad row or would be replaced, or the screening of a row
        failed. No output was written.
      OSError: a file cannot be read or written, or another run writes into `out`.
    """
    check_output(plan.sources, *(out / f"{n}.jsonl" for n in ("problems", "dropped")))
    inspected = [*map(inspect, each(plan.sources, "reading", "files"))]
    with files.locked(out):
        total = sum(source["rows"] for source in inspected)
        rows = _screened(plan, total)
        scale = level_scale(rows)
        with AnswerJudge(plan.workers, _ANSWER_SECONDS) as judge:
            decontaminate(plan, rows, judge)
            drop_duplicates(plan, rows, judge, scale)
        if plan.evidence == "required":
            _require_evidence(rows, plan.min_evidence)
        facts = {
            "verifier": verifier.VERSION,
            "evaluation_problems": len(plan.evaluation),
            "sources": inspected,
            "options": {
                "screen": dataclasses.asdict(plan.screen),
                "near": dataclasses.asdict(plan.near),
                "evidence": plan.evidence,
                "min_evidence": plan.min_evidence,
            },
            "level_scale": scale,
            "linked_scales": assign_levels(rows, scale),
        }
        return _write(out, facts, plan, rows)


def _screened(plan: Plan, total: int) -> list[Row]:
    options, function = dataclasses.astuple(plan.screen), "tools.curation.screen:Screen"
    with (
        watch("screening", total=total, unit="rows") as done,
        Workers(plan.workers, _ROW_SECONDS, function, confined=False) as workers,
    ):
        found: list[Row] = []
        all_rows = itertools.chain.from_iterable(map(read, plan.sources))
        while chunk := list(itertools.islice(all_rows, _CHUNK)):
            jobs = [(options, [row]) for row in chunk]
            results = [row for (row,) in workers.map(jobs, on_done=done.update)]
            for row, source in zip(results, chunk, strict=True):
                if isinstance(row, Lost):
                    raise ValueError(
                        f"source {source.source!r}, row {source.id!r}: its screening"
                        f" {row.reason}; remove the row"
                    )
            found += results
    return found


def _require_evidence(rows: Sequence[Row], least: float) -> None:
    for row in rows:
        if row.survives and (not row.evidence or row.strength < least):
            found = (f"{one.by}: {one.correct}/{one.samples}" for one in row.evidence)
            row.reasons["no_evidence"] = ", ".join(found) or "none"


def _write(
    out: pathlib.Path, facts: dict[str, Any], plan: Plan, rows: Sequence[Row]
) -> dict[str, Any]:
    ids: set[str] = set()
    for n, row in enumerate(rows):
        if row.id in ids:
            row.id += f"~{n}"
        ids.add(row.id)
    kept = [row.record() for row in rows if row.survives]
    for record in kept:
        del record["solution"]
    dropped = [
        {"id": row.id, "source": row.source, "reason": ", ".join(row.reasons)}
        | {"details": row.reasons}
        | {name: row.record()[name] for name in ("evidence", "problem", "answer")}
        for row in rows
        if row.reasons
    ]
    steps = {**plan.screen.meanings, **_LATER_STEPS}
    summary = facts | report.count(rows, steps)
    summary["evidence_by_source"] = report.evidence_by_source(
        rows, plan.min_evidence, plan.readings
    )
    tables = list(report.tables(summary))
    outputs = {
        "problems.jsonl": "".join(map(files.json_line, kept)),
        "dropped.jsonl": "".join(map(files.json_line, dropped)),
        "report.md": markdown(report.TITLE, tables),
        "report.html": page(report.TITLE, tables, report.examples(rows)),
    }
    # summary.json is written last: it marks the other outputs as complete.
    (out / "summary.json").unlink(missing_ok=True)
    for name, text in outputs.items():
        files.replace(out / name, text)
    summary["outputs"] = {name: files.sha256(out / name) for name in outputs}
    files.replace_json(out / "summary.json", summary)
    return summary
