"""Runs curation; all rows are in memory."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

from configs.schema import Count, Share, call
from rl import files, verifier
from rl.problems.types import Problem
from rl.progress import each, watch
from rl.verifier.pool import Lost, Workers
from tools.curation import report
from tools.curation.decontaminate import decontaminate
from tools.curation.duplicates import drop_duplicates
from tools.curation.evidence import load_readings
from tools.curation.levels import assign_levels, level_scale
from tools.curation.row import Row
from tools.curation.screen import CHECKS, screen
from tools.curation.sources import Source, check_output, read
from tools.evaluation.benchmarks import load_benchmark
from tools.page import markdown, page

_CHUNK = 2_000  # rows screened at a time
_ROW_SECONDS = 60.0  # time limit to screen a row, which usually takes milliseconds
_LATER_STEPS = {
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


def curate(
    out: pathlib.Path,
    *,
    sources: Sequence[Any],
    evaluation: Sequence[str],
    data_dir: str,
    evidence: Literal["required", "preferred", "off"],
    min_evidence: Share,
    readings: str,
    workers: Count,
) -> dict[str, Any]:
    """Curates the rows of `sources`, writes the outputs and returns the summary.

    The arguments are described in configs/curate.py. Each source has the arguments of
    `Source`.

    Raises:
      ValueError: a source or a row is not valid, a source would be replaced, a
        benchmark is not the published one, or the screening of a row failed. No output
        was written.
      OSError: a file cannot be read or written, a known benchmark is missing, or
        another run writes into `out`.
    """
    files_read = [call(Source, f"sources[{i}]", s) for i, s in enumerate(sources)]
    problems = _evaluation(evaluation, data_dir)
    checked = load_readings(os.path.expandvars(readings))
    check_output(files_read, *(out / f"{n}.jsonl" for n in ("problems", "dropped")))
    rows, facts = [], []
    for source in each(files_read, "reading", "files"):
        rows += (found := read(source))
        facts.append(source.facts(len(found)))
        del found  # `_screen` replaces rows by smaller ones
    with files.locked(out):
        _screen(rows, workers)
        scale = level_scale(rows)
        decontaminate(rows, problems)
        drop_duplicates(rows, scale, None if evidence == "off" else min_evidence)
        for row in rows if evidence == "required" else ():
            if row.survives and (not row.evidence or row.strength < min_evidence):
                row.reasons["no_evidence"] = row.solvers or "none"
        summary = {
            "verifier": verifier.VERSION,
            "evaluation_problems": len(problems),
            "sources": facts,
            "options": {"evidence": evidence, "min_evidence": min_evidence},
            "level_scale": scale,
            "linked_scales": assign_levels(rows, scale),
        }
        meanings = {
            step: {c.__name__: (c.__doc__ or "").partition("\n")[0] for c in checks}
            for step, checks in CHECKS.items()
        }
        summary |= report.count(rows, meanings | _LATER_STEPS, min_evidence, checked)
        return _write(out, summary, rows)


def _evaluation(names: Sequence[str], data_dir: str) -> dict[str, Problem]:
    """Returns the problems of all evaluation sets by the id "SET/ID"."""
    folder = pathlib.Path(os.path.expandvars(data_dir))
    found: dict[str, Problem] = {}
    for name in map(os.path.expandvars, names):
        for problem in load_benchmark(name, folder):
            id = f"{pathlib.PurePath(name).stem}/{problem.id}"
            id = f"{name}/{problem.id}" if id in found else id  # files of equal name
            found[id] = dataclasses.replace(problem, id=id)
    return found


def _screen(rows: list[Row], workers: int) -> None:
    """Replaces each row by its repaired and checked copy."""
    # A worker calls `functools.partial(screen)`, which returns `screen` itself.
    with (
        watch("screening", total=len(rows), unit="rows") as done,
        Workers(workers, _ROW_SECONDS, "functools:partial", confined=False) as pool,
    ):
        for start in range(0, len(rows), _CHUNK):
            jobs = [((screen,), [row]) for row in rows[start : start + _CHUNK]]
            found = pool.map(jobs, on_done=done.update)
            for n, (row,) in enumerate(found, start):
                if isinstance(row, Lost):
                    raise ValueError(
                        f"source {rows[n].source!r}, row {rows[n].id!r}: its screening"
                        f" {row.reason}; remove the row"
                    )
                rows[n] = row


def _write(
    out: pathlib.Path, summary: dict[str, Any], rows: Sequence[Row]
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
    sections = [*report.sections(summary), report.examples(rows)]
    outputs = {
        "problems.jsonl": "".join(map(files.json_line, kept)),
        "dropped.jsonl": "".join(map(files.json_line, dropped)),
        "report.md": markdown(report.TITLE, sections[:-1]),
        "report.html": page(report.TITLE, sections),
    }
    # summary.json is written last: it marks the other outputs as complete.
    (out / "summary.json").unlink(missing_ok=True)
    for name, text in outputs.items():
        files.replace(out / name, text)
    summary["outputs"] = {name: files.sha256(out / name) for name in outputs}
    files.replace_json(out / "summary.json", summary)
    return summary
