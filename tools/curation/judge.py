"""What a model says of a row: is it one complete, verifiable question with this answer?

What is asked is kept under the hash of its text, so that nothing is asked twice: not by
the same command again, and not for the rows that another input has in common.
"""

import collections
import hashlib
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rl.evaluate import Drawn
from rl.statistics import wilson_interval
from rl.types import Problem

NAME = "judged"  # what the replies are kept under, as completions of a benchmark are

_QUESTION = pathlib.Path(__file__).with_suffix(".txt").read_text().rstrip()
_VERDICT = re.compile(r"^[^\w\n]*verdict[^\w\n]+(yes|no)[^\w\n]*$", re.I | re.M)
_SAID = 200  # last characters of a reply that go with its verdict
UNASKED = {"sound": None, "said": ""}  # the `opinion` of a row too long to be asked


def question(row: Mapping[str, Any]) -> Problem:
    """What is asked of a row in our own schema; its id is the hash of its text."""
    answer = "\nor\n".join(row["answers"])
    text = _QUESTION.format(problem=row["problem"], answer=answer)
    id = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return Problem(id=id, problem=text, answers=("yes",))


def opinion(reply: Drawn) -> dict[str, Any]:
    """The verdict of a reply: its last, since a model may change its mind.

    `sound` is None where the reply has none or broke off.
    """
    found = _VERDICT.findall(reply.completion)
    told = found and reply.finish_reason != "length"
    return {
        "sound": found[-1].lower() == "yes" if told else None,
        "said": reply.completion.strip()[-_SAID:],
    }


def agreement(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far the model agrees with the people who labelled rows.

    Of judged rows with a `meta.label`, true (sound) or false: how many by label and
    verdict, and the share on which both agree. Empty without any.
    """
    words = {True: "sound", False: "unsound", None: "unknown"}
    pairs = collections.Counter(
        (row["meta"]["label"], row["judged"]["sound"])
        for row in rows
        if isinstance(row["meta"].get("label"), bool)
    )
    if not pairs:
        return {}
    agreed = pairs[True, True] + pairs[False, False]
    judged = agreed + pairs[True, False] + pairs[False, True]
    told = {
        f"labelled_{words[label]}": {words[said]: pairs[label, said] for said in words}
        for label in (True, False)
    }
    return told | {
        "agreement": agreed / judged if judged else None,
        "agreement_interval": wilson_interval(agreed, judged) if judged else None,
    }
