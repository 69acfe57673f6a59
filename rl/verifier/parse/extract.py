"""Finds the final answer of a completion: the last boxes that are in no other."""

import re

MAX_BOX = 20_000
"""Characters read around the last `\\boxed`; a longer box does not count."""

_MARKERS = ("\\boxed", "\\fbox")
_FIRST = re.compile(r"\\(?:boxed|fbox|[hv]?phantom)")
_BRACE = re.compile(
    r"(?P<box>\\(?:boxed|fbox)[a-zA-Z]*\s*)(?P<open>\{?)"
    r"|(?P<hidden>\\[hv]?phantom\s*\{)|\\(?!\\(?:boxed|fbox)).|[{}]",
    re.DOTALL,
)
_UNBRACED = re.compile(r"[^\s${}.,;\\]{1,64}")
_BLANK_LINE = re.compile(r"\n\s*\n")
# What may be between the boxes of one list.
_BETWEEN = re.compile(
    r"(?:[\s,;$&.]|\\[,;:! ()\[\]\\]|\\q?quad(?![a-z])|\band\b|\bor\b"
    r"|\\text\{\s*(?:,?\s*(?:and|or))?\s*\})+"
)
_MAX_BOXES = 20


def extract_answer(completion: str, *, after: str | None = None) -> str | None:
    r"""Returns what the last `\boxed{...}` holds that is in no other, or None.

    Later boxes replace earlier ones. A last box that is empty or never closed does
    not count, even where an earlier one was complete: a cut-off reply must not be
    credited for an intermediate result. A box inside of another is a part of its
    answer, and one inside of a phantom is not to be seen.

    Args:
      completion: the text of a reply; any length, one pass.
      after: a delimiter such as `</think>`: nothing before its last occurrence counts,
        and without it nothing does.

    Returns:
      The answer stripped of surrounding space, or None.
    """
    boxes = extract_boxes(completion, after=after)
    return boxes[-1] if boxes else None


def extract_boxes(completion: str, *, after: str | None = None) -> tuple[str, ...]:
    """Returns the last box, and the boxes before it that make one list with it.

    Those have nothing but separators between them: `$\\boxed{2}$ and $\\boxed{3}$`.

    Args:
      completion, after: as of `extract_answer`.

    Returns:
      What the boxes hold, in order; empty if there are none.
    """
    if after is not None:
        _, found, completion = completion.rpartition(after)
        if not found:
            return ()
    last = max(completion.rfind(marker) for marker in _MARKERS)
    if last < 0:
        return ()
    return _outermost(completion[max(0, last - MAX_BOX) : last + MAX_BOX])


def _outermost(text: str) -> tuple[str, ...]:
    """Returns what the last outermost boxes hold.

    A box that is never closed holds all that follows, up to a blank line: there a
    formula ends.
    """
    found: list[tuple[int, int, str]] = []
    # Of each open brace: where its command begins, where its content does, and which
    # command it is, "" for another one.
    opened: list[tuple[int, int, str]] = []
    never_closed = -1
    first = _FIRST.search(text)
    for match in _BRACE.finditer(text, first.start() if first else 0):
        start, end = match.span()
        if match["box"] is not None and not match["open"]:
            token = _UNBRACED.match(text, end)
            ends = token.end() if token else end
            found.append((start, ends, token[0] if token else ""))
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
                found.append((begins, end, text[content:start].strip()))
    for begins, _, kind in opened:
        if kind == "box":
            never_closed = max(never_closed, begins)
    begins = found[-1][0] if found else -1
    if never_closed > begins:
        return ()
    if never_closed >= 0 and not _BLANK_LINE.search(text, never_closed, begins):
        return ()
    boxes: list[str] = []
    for opens, ends, answer in reversed(found):
        between = text[ends:begins]
        apart = not _BETWEEN.fullmatch(between) or _BLANK_LINE.search(between)
        if not answer or boxes and (apart or len(boxes) == _MAX_BOXES):
            break
        boxes.append(answer)
        begins = opens
    return tuple(reversed(boxes))
