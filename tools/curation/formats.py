"""The formats of public sets: where in their rows our fields stand.

A format is data: our field -> the path of the source's, such as `prompt[0].content`.
It is recognised by the columns of the first row. What no path takes stays in `meta`.
"""

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from tools.curation.row import FIELDS

TURNS = "messages"
"""The column that a row is given which is no object but a list of turns."""

# name -> (a column that tells it from the others, our field -> path where they differ).
# The first is meant whose paths and column are all there. DeepScaleR, NuminaMath-1.5,
# MATH and our own files name their columns as we do: `problem` and what we know beside
# it. A worked solution that ends in its answer gives the answer by itself.
_REWARD = "reward_model.ground_truth"
FORMATS: dict[str, tuple[str | None, dict[str, str]]] = {
    "open_reasoner_zero": (
        None,
        {"problem": f"{TURNS}[0].value", "answer": f"{TURNS}[1].ground_truth.value"},
    ),
    "skywork_or1": (
        "extra_info.model_difficulty",
        {"problem": "prompt[0].content", "answers": _REWARD, "source": "data_source"},
    ),
    "dapo": (
        None,
        {"problem": "prompt[0].content", "answer": _REWARD, "source": "data_source"},
    ),
    "dapo_processed": (
        _REWARD,
        {"problem": "prompt", "answer": "solution", "source": "data_source"},
    ),
    "big_math": (None, {"problem": "problem", "solve_rate": "llama8b_solve_rate"}),
    "gsm8k": (None, {"problem": "question", "answer": "answer"}),
    "problems": (None, {"problem": "problem"}),
}

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(rf"(?:{_STEP.pattern})+")
# What a set's makers put around a problem to ask a model for an answer in a form.
_WRAPPERS = re.compile(
    r"\A\s*(?:Solve the following math problem[^.\n]*\.\s*(?:The last line of your"
    r" response should be of the form Answer:[^\n]*)?"
    r"|(?:Question|Problem|User)\s{0,8}:"
    # a number in its book, and what the exam gave for it
    r"|(?:(?:Example|Exercise|Problem|Question|Task)\s*\d+[.:]?|\d{1,2}\.(?=\s+[A-Z(\[]))"
    r"(?:\s*[(\[][^)\]\n]{0,60}(?:points?|(?:19|20)\d\d)[^)\]\n]{0,60}[)\]])*[.:]?)\s*"
    r"|\s{0,8}(?:Remember to put your answer on its own line after \"Answer:\"[^\n]*"
    r"|(?:Please |Let's )?(?:reason|think) step by step[^\n]{0,40}\\boxed\s*\{\s*\}\.?"
    r"|Present the answer in LaTex format: \\boxed\{Your answer\}"
    r"|(?:Please )?(?:put|give|write|enclose|place) (?:your|the) (?:final )?answer"
    r"[^\n]{0,20}\\boxed\s*\{\s*\}\.?"
    r"|(?<=[.?!])\s{1,8}(?:\$|\\\()\s?(?:\\text\s?\{[^{}]*\}\s?)?\\boxed\s?\{[\s?]*\}"
    r"\s?(?:\$|\\\))"
    r"|\n\s{0,8}(?:Answer|Solution|Assistant)\s{0,8}:)\s*\Z",
    re.I,
)


def find_format(where: str, record: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The name of a first row's format, and its paths.

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
    """What a row has, for messages."""
    return ", ".join(sorted(map(str, record))) or "none"


def all_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Paths of all our fields: where nothing else is said, the column of that name.

    Raises:
      ValueError: a field is none of ours, or a path is not written as in `a.b[0]`.
    """
    for name, path in fields.items():
        if name not in FIELDS:
            raise ValueError(f"fields: {name!r} is none of {', '.join(FIELDS)}")
        if not _PATH.fullmatch(path):
            raise ValueError(f"fields: {name}={path!r}: must be written as in a.b[0]")
    return {name: name for name in FIELDS if name not in fields.values()} | fields


def parse_fields(text: str) -> dict[str, str]:
    """`problem=question,answer=reward.gold[0]` as on a command line.

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
    """Those of our fields that the record has, null included, and all else in it.

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
    return values, (inner if isinstance(inner, Mapping) else {"meta": inner}) | rest


def unwrapped(text: str) -> str:
    """A problem without what asks a model for an answer in some form around it."""
    while (shorter := _WRAPPERS.sub("", text)) != text and shorter.strip():
        text = shorter
    return text


def _place(record: Any, path: str) -> tuple[Any, str | int] | None:
    """What holds the thing at the path, and its key there; JSON in text is read."""
    *parents, last = (int(i) if i else key for key, i in _STEP.findall(path))
    try:
        for step in parents:
            if isinstance(record[step], str):
                record[step] = json.loads(record[step])
            record = record[step]
        record[last]
    except (LookupError, TypeError, ValueError):
        return None
    return None if isinstance(record, str) else (record, last)
