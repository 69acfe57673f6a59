"""The final answer of a completion: the last box that is in no other."""

import re

MAX_BOX = 20_000
"""Characters read around the last `\\boxed`; a longer box is no answer."""

_MARKERS = ("\\boxed", "\\fbox")
_ANSWER_LINE = re.compile(r"(?i)\banswer(?: is)?[ \t]*[:=]?[ \t]*")
_FIRST = re.compile(r"\\(?:boxed|fbox|[hv]?phantom)")
_BRACE = re.compile(
    r"(?P<box>\\(?:boxed|fbox)[a-zA-Z]*\s*)(?P<open>\{?)"
    r"|(?P<hidden>\\[hv]?phantom\s*\{)|\\(?!\\(?:boxed|fbox)).|[{}]",
    re.DOTALL,
)
_UNBRACED = re.compile(r"[^\s${}.,;\\]{1,64}")
_BLANK_LINE = re.compile(r"\n\s*\n")


def extract_answer(completion: str, *, answer_line: bool = False) -> str | None:
    r"""Returns what the last `\boxed{...}` holds that is in no other, or None.

    Later boxes replace earlier ones. A last box that is empty or never closed is no
    answer, even where an earlier one was complete: a cut-off reply must not be
    credited for an intermediate result. A box inside of another is a part of its
    answer, and one inside of a phantom is not to be seen.

    Args:
      completion: the text of a reply; any length, one pass.
      answer_line: with no box at all, fall back to what follows the last "answer is"
        or "Answer:" on its line. Off for training, where the box is the contract.

    Returns:
      The answer stripped of surrounding space, or None.
    """
    last = max(completion.rfind(marker) for marker in _MARKERS)
    if last >= 0:
        return _outermost(completion[max(0, last - MAX_BOX) : last + MAX_BOX])
    return _after_answer_word(completion) if answer_line else None


def _outermost(text: str) -> str | None:
    """What the last box holds that is in no other.

    A box that is never closed holds all that follows, up to a blank line: there a
    formula ends, and whoever went on has begun anew.
    """
    found: list[tuple[int, str]] = []
    # Of each open brace: where its command begins, where its content does, and which
    # command it is, "" for another one.
    opened: list[tuple[int, int, str]] = []
    never_closed = -1
    for match in _BRACE.finditer(text, _FIRST.search(text).start()):
        start, end = match.span()
        if match["box"] is not None and not match["open"]:
            token = _UNBRACED.match(text, end)
            found.append((start, token[0] if token else ""))
        elif match["box"] is not None or match["hidden"]:
            opened.append((start, end, "box" if match["hidden"] is None else "phantom"))
        elif match[0] == "{":
            opened.append((start, end, ""))
        elif match[0] == "}" and opened:
            begins, content, kind = opened.pop()
            while kind and found and found[-1][0] > begins:
                found.pop()
            if kind == "box" and start - content > MAX_BOX:
                never_closed = max(never_closed, begins)
            elif kind == "box":
                found.append((begins, text[content:start].strip()))
    for begins, _, kind in opened:
        if kind == "box":
            never_closed = max(never_closed, begins)
    begins, answer = found[-1] if found else (-1, "")
    if never_closed > begins:
        return None
    if never_closed >= 0 and not _BLANK_LINE.search(text, never_closed, begins):
        return None
    return answer or None


def _after_answer_word(text: str) -> str | None:
    tail = text[-MAX_BOX:]
    word = tail.lower().rfind("answer")
    if word < 0:
        return None
    match = _ANSWER_LINE.match(tail, word)
    if match is None:
        return None
    line = tail[match.end() :].split("\n", 1)[0].strip().strip("*").strip()
    return line.rstrip(".").strip() or None
