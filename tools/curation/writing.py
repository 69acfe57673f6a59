"""The outputs of a run, written aside and moved into place."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from rl import files, verifier
from tools.curation import levels
from tools.curation.pages import write_pages
from tools.curation.plan import Plan
from tools.curation.report import Report, Steps
from tools.curation.screen import Screen, make_screen
from tools.curation.sources import Inspected
from tools.curation.store import Store

OUTPUTS = ("problems.jsonl", "dropped.jsonl", "report.md", "report.html")


def write(
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
                dropped.write(files.json_line(record))
            else:
                report.add_kept(record)
                kept.write(files.json_line(record))
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
            name: files.sha256(temporary[name])
            for name in ("problems.jsonl", "dropped.jsonl")
        },
    }
    write_pages(report, facts, temporary["report.md"], temporary["report.html"])
    summary = facts | report.counts()
    summary["outputs"] = {name: files.sha256(path) for name, path in temporary.items()}
    for name, path in temporary.items():
        files.publish(path, out / name)
    files.replace_json(out / "summary.json", summary)
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
        "evaluation_reworded": "An evaluation problem in other words, with its answer.",
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
