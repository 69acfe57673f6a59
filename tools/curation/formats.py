"""Defines the formats of public sets, which map fields of `Row` to columns.

A column is given by a path, such as `gold[0]`. If the column `prompt` is a list of chat
messages, `prompt.user.content` is the text of the first message with role "user".
"""

import json
import re
from collections.abc import Mapping
from typing import Any

# fields that a source can provide, in the order of problems.jsonl
FIELDS = (
    "id problem answer answers source level level_source solve_rate solution".split()
)
TURNS = "messages"  # the column name for rows that are lists of chat messages

# By name: a path that rows must have (or None), and paths of the fields whose column
# has another name. The first matching format is used. "problems" has the field names of
# `Row`, as in DeepScaleR, NuminaMath-1.5, MATH and this project's files.
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
    """Returns the name of a file's format, and the path of each field.

    `record` is the first row of the file, and `where` names this row in the message of
    the ValueError that is raised if no format matches.
    """
    for name, (column, fields) in FORMATS.items():
        paths = all_fields(fields)
        needed = (path for path in (column, *fields.values()) if path)
        answers = (paths[field] for field in ("answer", "answers", "solution"))
        if all(has(record, p) for p in needed) and any(has(record, p) for p in answers):
            return name, paths
    raise ValueError(
        f"{where}: no known format (columns: {columns(record)}); name the columns with"
        " config.sources[].fields, or with --fields problem=COLUMN,answer=COLUMN.key[0]"
        " for files of --input"
    )


def columns(record: Mapping[str, Any]) -> str:
    return ", ".join(sorted(map(str, record))) or "none"


def all_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Adds missing fields of `FIELDS` to `fields`, which has paths by field.

    The path of a missing field is its own name. If another field already has this path,
    the missing field is not added.
    """
    for name, path in fields.items():
        if name not in FIELDS:
            known = ", ".join(FIELDS)
            raise ValueError(f"fields: {name}={path!r}: unknown field; use {known}")
        if not _PATH.fullmatch(path):
            raise ValueError(f"fields: {name}={path!r}: must be a path such as a.b[0]")
    return {name: name for name in FIELDS if name not in fields.values()} | dict(fields)


def parse_fields(text: str) -> dict[str, str]:
    """Parses a flag such as `problem=question,answer=reward.gold[0]`."""
    pairs = [entry.partition("=") for entry in text.split(",") if entry.strip()]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"--fields: {name!r}: must be FIELD=PATH")
    return {name.strip(): path.strip() for name, _, path in pairs}


def has(record: Mapping[str, Any], path: str) -> bool:
    """Returns whether a row has a value (possibly null) at a path."""
    return at(record, path, absent := object()) is not absent


def at(record: Any, path: str, default: Any = None) -> Any:
    """Returns the value at a path such as `a.b[0]`, or `default` if it does not exist.

    A string inside which the path continues is parsed as JSON. The last key may contain
    dots. In a list of chat messages, a key selects the first message with that role.
    """
    while path:
        try:
            if isinstance(record, str):
                record = json.loads(record)
            if isinstance(record, Mapping) and path in record:
                return record[path]
            step = _STEP.match(path)
            if not step:
                return default
            key, index = step.groups()
            if isinstance(record, list) and key:
                record = record[[turn["role"] for turn in record].index(key)]
            else:
                record = record[int(index) if index else key]
        except (LookupError, TypeError, ValueError):
            return default
        path = path[step.end() :].removeprefix(".")
    return record


def root(path: str) -> str:
    """Returns the first key of a path: its column, if the column's name has no dot."""
    return _STEP.findall(path)[0][0]
