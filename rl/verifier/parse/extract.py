"""Extracts the answer of a completion: the content of its last box or boxes."""

import re

MAX_BOX = 20_000
"""Characters read before and after the last box starts; longer boxes are unclosed."""

_MARKERS = ("\\boxed", "\\fbox")
_FIRST = re.compile(r"\\(?:boxed|fbox|[hv]?phantom)")
_BRACE = re.compile(
    r"(?P<box>\\(?:boxed|fbox)[a-zA-Z]*\s*)(?P<open>\{?)"
    r"|(?P<hidden>\\[hv]?phantom\s*\{)|\\(?!\\(?:boxed|fbox)).|[{}]",
    re.DOTALL,
)
_UNBRACED = re.compile(r"[^\s${}.,;\\]{1,64}")
_BLANK_LINE = re.compile(r"\n\s*\n")
# Matches the separators between the boxes of one list.
_BETWEEN = re.compile(
    r"(?:[\s,;$&.]|\\[,;:! ()\[\]\\]|\\q?quad(?![a-z])|\band\b|\bor\b"
    r"|\\text\{\s*(?:,?\s*(?:and|or))?\s*\})+"
)
_MAX_BOXES = 20


def extract_answer(completion: str, *, after: str | None = None) -> str | None:
    r"""Returns the content of the last `\boxed` or `\fbox` that is not in another box.

    Returns None if this box is empty or never closed, because a truncated completion
    must not be credited for an intermediate result. Boxes in a phantom are ignored.
    Only text after the last `after`, such as `</think>`, counts.
    """
    boxes = extract_boxes(completion, after=after)
    return boxes[-1] if boxes else None


def extract_boxes(completion: str, *, after: str | None = None) -> tuple[str, ...]:
    r"""Returns the contents of the last box and of the boxes that form a list with it.

    Boxes of a list have only separators between them: `$\boxed{2}$ and $\boxed{3}$`.
    At most 20 boxes are returned. See also `extract_answer`.
    """
    completion = behind(completion, after)
    last = max(completion.rfind(marker) for marker in _MARKERS)
    if last < 0:
        return ()
    return _outermost(completion[max(0, last - MAX_BOX) : last + MAX_BOX])


def behind(completion: str, after: str | None) -> str:
    """Returns the text after the last `after`: all for None, "" if it is missing."""
    if after is None:
        return completion
    _, found, text = completion.rpartition(after)
    return text if found else ""


def _outermost(text: str) -> tuple[str, ...]:
    found: list[tuple[int, int, str]] = []
    # For each open brace: the start of its command, the start of its content, and its
    # kind: "box", "phantom", or "" for other braces.
    opened: list[tuple[int, int, str]] = []
    never_closed = -1  # start of the last one; later boxes must follow a blank line
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
    never_closed = max([never_closed, *(at for at, _, kind in opened if kind == "box")])
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
