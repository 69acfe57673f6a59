"""Runs curation; all rows are in memory."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from configs.schema import Count, Share, call
from rl import files, verifier
from rl.problems.types import Problem
from rl.progress import each, watch
from rl.verifier.pool import Lost, Workers
from tools.curation import report
from tools.curation.decontaminate import decontaminate
from tools.curation.duplicates import drop_duplicates
from tools.curation.evidence import Readings, load_readings
from tools.curation.levels import assign_levels, level_scale
from tools.curation.row import Row
from tools.curation.screen import CHECKS, screen
from tools.curation.sources import Source, check_output, read
from tools.evaluation.benchmarks import is_another_copy, load_benchmark
from tools.tables import markdown, page

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


def curate_config(
    config: Mapping[str, Any],
    out: pathlib.Path,
    *,
    inputs: Sequence[str] | None = None,
    fields: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Calls `curate` with the values of a config, after reading the files it names.

    The keys are described in configs/curate.py. The files `inputs`, if any, replace the
    sources of the config. For these files, `fields` has paths of columns by field of
    `Row`; see `formats`.

    Raises:
      ValueError: a key, value or source is not valid, or a benchmark is not the
        published one; or see `curate`.
      OSError: a file cannot be read, or a known benchmark is missing; or see `curate`.
    """
    options = {**config}
    if inputs:
        options["sources"] = [{"path": p, "fields": fields or {}} for p in inputs]
    return call(_curate, "", options, out=out)


def _curate(
    out: pathlib.Path,
    sources: Sequence[Any] = (),
    evaluation: Sequence[str] = (),
    data_dir: str = "",
    readings: str = "",
    **others: Any,
) -> dict[str, Any]:
    options = {
        "sources": [call(Source, f"sources[{i}]", s) for i, s in enumerate(sources)],
        "evaluation": _evaluation(evaluation, data_dir),
        "readings": load_readings(os.path.expandvars(readings)),
    }
    return call(curate, "", others | options, out=out)


def _evaluation(names: Sequence[str], data_dir: str) -> dict[str, Problem]:
    """Returns the problems of all evaluation sets by the id "SET/ID"."""
    folder = pathlib.Path(os.path.expandvars(data_dir))
    found: dict[str, Problem] = {}
    for name in map(os.path.expandvars, names):
        problems = load_benchmark(name, folder)
        if is_another_copy(name, problems):
            raise ValueError(
                f"config.evaluation: {name} in {folder} differs from the published set;"
                " download that with tools.fetch, or, to use this copy, give the path"
                " of its .jsonl file"
            )
        for problem in problems:
            id = f"{pathlib.PurePath(name).stem}/{problem.id}"
            found[id] = dataclasses.replace(problem, id=id)
    return found


def curate(
    out: pathlib.Path,
    *,
    sources: Sequence[Source],
    evaluation: Mapping[str, Problem],
    evidence: Literal["required", "preferred", "off"],
    min_evidence: Share,
    readings: Readings,
    workers: Count,
) -> dict[str, Any]:
    """Curates the rows of `sources`, writes the outputs and returns the summary.

    `evaluation` has evaluation problems by id, and `readings` the counts of
    `load_readings`. The other arguments are described in configs/curate.py.

    Raises:
      ValueError: a source has a bad row or would be replaced, or the screening of a row
        failed. No output was written.
      OSError: a file cannot be read or written, or another run writes into `out`.
    """
    check_output(sources, *(out / f"{n}.jsonl" for n in ("problems", "dropped")))
    by_source = [(s, read(s)) for s in each(sources, "reading", "files")]
    facts = [source.facts(len(some)) for source, some in by_source]
    rows = [row for _, some in by_source for row in some]
    del by_source  # `_screen` replaces rows by smaller ones
    with files.locked(out):
        _screen(rows, workers)
        scale = level_scale(rows)
        decontaminate(rows, evaluation)
        drop_duplicates(rows, scale, None if evidence == "off" else min_evidence)
        if evidence == "required":
            _require_evidence(rows, min_evidence)
        summary = {
            "verifier": verifier.VERSION,
            "evaluation_problems": len(evaluation),
            "sources": facts,
            "options": {"evidence": evidence, "min_evidence": min_evidence},
            "level_scale": scale,
            "linked_scales": assign_levels(rows, scale),
        }
        return _write(out, summary, rows, min_evidence, readings)


def _screen(rows: list[Row], workers: int) -> None:
    """Replaces each row by its repaired and checked copy."""
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


def _require_evidence(rows: Sequence[Row], least: float) -> None:
    for row in rows:
        if row.survives and (not row.evidence or row.strength < least):
            found = (f"{one.by}: {one.correct}/{one.samples}" for one in row.evidence)
            row.reasons["no_evidence"] = ", ".join(found) or "none"


def _write(
    out: pathlib.Path,
    summary: dict[str, Any],
    rows: Sequence[Row],
    least: float,
    readings: Readings,
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
    meanings = {
        step: {c.__name__: (c.__doc__ or "").partition("\n")[0] for c in checks}
        for step, checks in CHECKS.items()
    }
    summary |= report.count(rows, meanings | _LATER_STEPS, least, readings)
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
