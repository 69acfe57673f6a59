"""Lists the formats of public sets: where their rows have the fields of `Row`.

A format maps a field to a path such as `prompt.user.content` (of chat turns, the first
by that role) or `gold[0]`. The columns of the first row identify it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from tools.curation.row import FIELDS

TURNS = "messages"  # the column of a row that is a list of turns

# name -> (a column that only this format has, field -> path where they differ). The
# first that fits is taken. DeepScaleR, NuminaMath-1.5, MATH and our own files name
# their columns as we do.
_CHAT = {"problem": "prompt.user.content", "source": "data_source"}
_REWARD = "reward_model.ground_truth"
FORMATS: dict[str, tuple[str | None, dict[str, str]]] = {
    "open_reasoner_zero": (
        None,
        {"problem": f"{TURNS}[0].value", "answer": f"{TURNS}[1].ground_truth.value"},
    ),
    "skywork_or1": ("extra_info.model_difficulty", _CHAT | {"answers": _REWARD}),
    "chat": (None, _CHAT | {"answer": _REWARD}),
    "dapo_processed": (_REWARD, _CHAT | {"problem": "prompt", "answer": "solution"}),
    "deepmath": (None, {"problem": "question", "answer": "final_answer"}),
    "gsm8k": (None, {"problem": "question", "answer": "answer"}),
    "problems": (None, {"problem": "problem"}),
}
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(rf"(?:{_STEP.pattern})+")


def find_format(where: str, record: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Returns the name of a first row's format, and its paths.

    Raises:
      ValueError: it is in no known format; the message names the columns.
    """
    for name, (column, fields) in FORMATS.items():
        paths = all_fields(fields)
        needed = (path for path in (column, *fields.values()) if path)
        answers = (paths[field] for field in ("answer", "answers", "solution"))
        if all(has(record, path) for path in needed):
            if any(has(record, path) for path in answers):
                return name, paths
    raise ValueError(
        f"{where}: no known format (columns: {columns(record)}); say which is which,"
        " as in --fields problem=COLUMN,answer=COLUMN.key[0]"
    )


def columns(record: Mapping[str, Any]) -> str:
    """Lists the columns of a row, for messages."""
    return ", ".join(sorted(map(str, record))) or "none"


def all_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the paths of all fields; by default the column of that name.

    Raises:
      ValueError: an unknown field, or a path that is not written as in `a.b[0]`.
    """
    for name, path in fields.items():
        if name not in FIELDS:
            raise ValueError(f"fields: {name!r} is none of {', '.join(FIELDS)}")
        if not _PATH.fullmatch(path):
            raise ValueError(f"fields: {name}={path!r}: must be written as in a.b[0]")
    return {name: name for name in FIELDS if name not in fields.values()} | dict(fields)


def parse_fields(text: str) -> dict[str, str]:
    """Parses `problem=question,answer=reward.gold[0]` from a command line.

    Raises:
      ValueError: an entry has no `=`.
    """
    pairs = [entry.partition("=") for entry in text.split(",") if entry.strip()]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"fields: {name!r}: must be written as FIELD=PATH")
    return {name.strip(): path.strip() for name, _, path in pairs}


def has(record: Mapping[str, Any], path: str) -> bool:
    """Returns whether a row has a value, perhaps null, at a path."""
    return at(record, path, absent := object()) is not absent


def at(record: Any, path: str, default: Any = None) -> Any:
    """Returns the value at a path; an object may be text in JSON."""
    for key, index in _STEP.findall(path):
        step: Any = int(index) if index else key
        try:
            if isinstance(record, str):
                record = json.loads(record)
            if isinstance(record, list) and key:
                step = [turn["role"] for turn in record].index(step)
            record = record[step]
        except (LookupError, TypeError, ValueError):
            return default
    return record


def root(path: str) -> str:
    """Returns the column that a path begins in."""
    return _STEP.findall(path)[0][0]
