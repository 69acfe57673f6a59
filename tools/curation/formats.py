"""Lists the formats of public sets: where their rows have our fields.

A format is data: our field -> the path of the source's, as `prompt.user.content`, of
turns the first by that role. The first row's columns tell it. The rest is in `meta`.
"""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from tools.curation.row import FIELDS

TURNS = "messages"  # the column of a row that is no object but a list of turns

# name -> (a column that tells it from the others, our field -> path where they differ).
# The first is meant whose paths and column are all there. DeepScaleR, NuminaMath-1.5,
# MATH and our own files name their columns as we do.
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
      ValueError: it is none of them; the message names the columns.
    """
    held = copy.deepcopy(record)
    for name, (column, fields) in FORMATS.items():
        paths = all_fields(fields)
        known = all(_place(held, path) for path in (column, *fields.values()) if path)
        told = ("answer", "answers", "solution")
        if known and any(_place(held, paths[name]) for name in told):
            return name, paths
    raise ValueError(
        f"{where}: no known format (columns: {columns(record)}); say which is which,"
        " as in --fields problem=COLUMN,answer=COLUMN.key[0]"
    )


def columns(record: Mapping[str, Any]) -> str:
    """Lists the columns of a row, for messages."""
    return ", ".join(sorted(map(str, record))) or "none"


def all_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the paths of all our fields; by default the column of that name.

    Raises:
      ValueError: a field is none of ours, or a path is not written as in `a.b[0]`.
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
            raise ValueError(f"fields: {name!r}: must be written as ours=theirs")
    return {name.strip(): path.strip() for name, _, path in pairs}


def split(
    record: Mapping[str, Any], fields: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits a record into our fields that it has, null included, and the rest.

    What the record has under `meta` is spread among the rest, which goes before it.
    """
    rest = copy.deepcopy(dict(record))
    values = {}
    for name, path in fields.items():
        if place := _place(rest, path):
            holder, key = place
            values[name] = holder[key]
            if isinstance(holder, dict):
                del holder[key]
            else:  # the others keep their places
                holder[key] = None
    inner = rest.pop("meta", None) or {}
    inner = dict(inner) if isinstance(inner, Mapping) else {"meta": inner}
    return values, inner | rest


def _place(record: Any, path: str) -> tuple[Any, str | int] | None:
    """Returns the container at the path and the last key; parses JSON in text."""
    *parents, last = (int(i) if i else key for key, i in _STEP.findall(path))
    try:
        for step in parents:
            if isinstance(record, list) and isinstance(step, str):
                step = [turn["role"] for turn in record].index(step)
            if isinstance(record[step], str):
                record[step] = json.loads(record[step])
            record = record[step]
        record[last]
    except (LookupError, TypeError, ValueError):
        return None
    return None if isinstance(record, str) else (record, last)
