"""The final answer of a completion: the last box, read in one pass."""

import re

MAX_BOX = 20_000
"""Characters read after the last `\\boxed`; a longer box is no answer."""

_MARKERS = ("\\boxed", "\\fbox")
_ANSWER_LINE = re.compile(r"(?i)\banswer(?: is)?[ \t]*[:=]?[ \t]*")
_BRACE = re.compile(r"[\\{}]")


def extract_answer(completion: str, *, answer_line: bool = False) -> str | None:
    r"""Returns the content of the last `\boxed{...}`, or None.

    Later boxes replace earlier ones. A last box that is empty or never closed is no
    answer, even where an earlier one was complete: a cut-off reply must not be
    credited for an intermediate result.

    Args:
      completion: the text of a reply; any length, one pass.
      answer_line: with no box at all, fall back to what follows the last "answer is"
        or "Answer:" on its line. Off for training, where the box is the contract.

    Returns:
      The answer stripped of surrounding space, or None.
    """
    start = max(completion.rfind(marker) for marker in _MARKERS)
    if start >= 0:
        return _box_content(completion, start)
    return _after_answer_word(completion) if answer_line else None


def _box_content(text: str, start: int) -> str | None:
    position = start + 1
    while position < len(text) and text[position].isalpha():
        position += 1
    while position < len(text) and text[position].isspace():
        position += 1
    if position >= len(text):
        return None
    if text[position] != "{":
        token = re.compile(r"[^\s${}.,;\\]{1,64}").match(text, position)
        return token.group() if token else None
    end = _matching_brace(text, position, position + MAX_BOX)
    return (text[position + 1 : end].strip() or None) if end else None


def _matching_brace(text: str, position: int, limit: int) -> int | None:
    depth = 0
    while match := _BRACE.search(text, position, limit):
        position = match.end()
        char = match.group()
        if char == "\\":
            position += 1
        elif char == "{":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return position - 1
    return None


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
