"""Multiple choice: finding the options, and turning the question into its value."""

import re

from tools.curation.grammar import ASKS, STYLE, any_of, sentences
from tools.curation.repair import bare_answer

# Blanks, as many as stand between words: without a bound, what begins with a run of
# them and does not match costs the third power of its length.
_S = r"\s{0,8}"
# (A) or \textbf{(A)} anywhere; A) and A. where an option can begin.
_ANYWHERE = (
    rf"\$?{_S}(?:{STYLE}{_S}\{{?{_S}|\{{{_S}{STYLE}{_S})?(?<![A-Za-z0-9_\\])"
    rf"\({_S}(?:{STYLE}{_S}\{{?)?L{_S}\}}?"
    rf"{_S}(?:\\{_S})?\){_S}(?:\\[ ,;]|\}}|:|\$(?={_S}\$))*"
)
_AT_BREAK = (
    rf"(?:^|\n|\s{{2}}|(?<=[:?.;,$])\s|\\q?quad|\s(?=\*\*|L\)))[-*\s$]{{0,8}}"
    rf"(?:{STYLE}{_S}\{{?)?\$?L\$?{_S}\*{{0,2}}[).:]\*{{0,2}}\}}?(?=[\s$\\\dA-Z*(-])\*{{0,2}}"
)
_LABELS = ("ABCDEFGH", "abcdefgh", "12345678")

_NEEDS_OPTIONS = any_of(
    r"\b(?:which|choose|select|identify)\b[^.?]{0,40}\b(?:following|these|below|options?"
    r"|answers?)\b",
    r"(?:^|[.?!:;,] |\bhow many )(?:of|among) the following\b",
    r"\bfollowing \w+\b[^.?:]{0,60}\b(?:is|are|could|must|can|best|not|true)\b",
    r"\b(?:best describes|(?:clos|near)est to|most likely|approximate)\b",
    r"\bwhich (?:one|statement|figure|graph|interval|expression)\b",
    r"\bwhich (?:\w+ )?(?:in)?equa\w+ (?:has|could|is)\b",
)
# A last sentence that only orders to choose says where the options stood.
_ORDERS_A_CHOICE = re.compile(
    r"(?<=[.?!$)\]])\s+(?:(?:please )?(?:choose|select|pick)(?: (?:the|one|an?|most"
    r"|best|correct|right|appropriate|options?|answers?|choices?|from|of|below|among"
    r"|given|following))*"
    r"|(?:answer )?(?:options|choices))\s*[.:]?\Z",
    re.I,
)
# What is taken from an answer before it is read as an option's letter or as labels.
_STYLING = re.compile(rf"{STYLE}(?![a-z])|\\(?=\W)|[{{}}\s$.]")
_NAMES_OPTIONS = re.compile(
    r"\([A-Ha-h]\)|(?:\(?[①-⑩]\)?|\((?:\d|i{1,3}|iv|v)\)|[,，、;]|and)+"
)


def find_choices(
    problem: str, labels: str = _LABELS[0]
) -> tuple[str, dict[str, str], str] | None:
    """The question before its labelled options, these by label, and what follows.

    None without such a list. The last option ends with its line.
    """
    for style in (_ANYWHERE, _AT_BREAK):
        marks: list[re.Match] = []
        for letter in labels:  # as far as they come in order
            start = marks[-1].end() if marks else 0
            mark = re.compile(style.replace("L", letter)).search(problem, start)
            if mark is None:
                break
            marks.append(mark)
        if len(marks) < 3:
            continue
        ends = [mark.start() for mark in marks[1:]] + [len(problem)]
        *texts, last = (
            problem[mark.end() : end] for mark, end in zip(marks, ends, strict=True)
        )
        # Persons speaking and conditions are lettered too, and the question comes last.
        _, *after = sentences(" ".join(last.split()))
        if "?" not in last and not any(map(ASKS.search, after)):
            last, _, tail = last.strip().partition("\n")
            options = dict(zip(labels, [*texts, last], strict=False))
            return problem[: marks[0].start()].strip(), options, tail
    return None


def to_value(problem: str, answer: str) -> tuple[str, str] | None:
    """The question without its options, and its answer as a value.

    Small letters and numbers label parts too: they are options where the answer is one
    of them, or names one that the problem orders to choose.

    Returns:
      (problem, answer), or None if the question makes no sense without its options, or
      the answer names none of them.
    """
    said = _STYLING.sub("", answer).strip("()")

    def bare(text: str) -> str:
        return _STYLING.sub("", bare_answer(text))

    for labels in _LABELS:
        asked, options, tail = find_choices(problem, labels) or ("", {}, "")
        stem = _ORDERS_A_CHOICE.sub("", asked)
        said_after = tail.strip(" \n$}\\").split()
        if not options or _NEEDS_OPTIONS.search(stem) or len(said_after) > 2:
            continue
        label = said.lower() if labels.islower() else said
        listed = bare(answer) in map(bare, options.values())
        meant = stem != asked if label.isdigit() else labels.isupper() or not listed
        if label in options and meant:
            answer = options[label]
        elif not listed and (not labels.isupper() or said in [*labels]):
            continue
        return (stem, value) if (value := bare_answer(answer)) else None
    return None


def is_choice_answer(answer: str) -> bool:
    """Whether the answer names options or statements rather than a value."""
    return _NAMES_OPTIONS.fullmatch(_STYLING.sub("", answer)) is not None
