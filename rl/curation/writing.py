"""The outputs of a run, written aside and moved into place."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from rl import verifier
from rl.curation import levels
from rl.curation.pages import write_pages
from rl.curation.plan import Plan
from rl.curation.report import Report, Steps
from rl.curation.screen import Screen, make_screen
from rl.curation.sources import Inspected
from rl.curation.store import Store

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
                dropped.write(_line(record))
            else:
                report.add_kept(record)
                kept.write(_line(record))
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
            name: sha256(temporary[name])
            for name in ("problems.jsonl", "dropped.jsonl")
        },
    }
    write_pages(report, facts, temporary["report.md"], temporary["report.html"])
    summary = facts | report.counts()
    summary["outputs"] = {name: sha256(path) for name, path in temporary.items()}
    for name, path in temporary.items():
        os.replace(path, out / name)
    written = out / ".work" / "summary.json"
    written.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    os.replace(written, out / "summary.json")
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


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
