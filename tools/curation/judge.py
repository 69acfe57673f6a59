"""What a model says of a row: is it one complete, verifiable question with this answer?

What is asked is kept under the hash of its text, so that nothing is asked twice: not by
the same command again, and not for the rows that another input has in common.
"""

import collections
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rl.evaluate import Drawn
from rl.statistics import wilson_interval
from rl.types import Problem

NAME = "judged"
"""What the replies are kept under, as completions of a benchmark are."""

_QUESTION = """\
Below are a problem from a collection and the answer that stands beside it. Either may \
be faulty. Are all four of these true?

1. The problem is complete: no figure, option or given value is missing.
2. It asks for one thing, and there is one answer to it.
3. A rule can compare that answer with another: it is no proof and no explanation.
4. The answer that stands beside it is right.

Think it through, then end with a line of its own: "Verdict: yes" if all four are \
true, "Verdict: no" if any is not.

<problem>
{problem}
</problem>

<answer>
{answer}
</answer>"""
_VERDICT = re.compile(r"^[^\w\n]*verdict[^\w\n]+(yes|no)[^\w\n]*$", re.I | re.M)
_SAID = 200  # last characters of a reply that go with its verdict
UNASKED = {"sound": None, "said": ""}
"""The `opinion` of a row that is too long to be asked about."""


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

    Judged rows count whose `meta.label` is true (sound) or false: their number by label
    and verdict, and the share on which both agree. Empty without any.
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
    return {
        f"labelled_{words[label]}": {
            word: pairs[label, verdict] for verdict, word in words.items()
        }
        for label in (True, False)
    } | {
        "agreement": agreed / judged if judged else None,
        "agreement_interval": wilson_interval(agreed, judged) if judged else None,
    }
