"""Multiple choice: finding the options, and turning the question into its value."""

import re
from collections.abc import Iterable

from tools.curation.grammar import ASKS, STYLE, any_of, sentences
from tools.curation.repair import bare_answer

# Blanks between words: of an unbounded run what fails costs the third power.
_S = r"\s{0,8}"
# (A) or \textbf{(A)} anywhere; A) and A. where an option can begin.
ANYWHERE = (
    rf"\$?{_S}(?:{STYLE}{_S}\{{?{_S}|\{{{_S}{STYLE}{_S})?(?<![A-Za-z0-9_\\])"
    rf"\({_S}(?:{STYLE}{_S}\{{?)?(L){_S}\}}?"
    rf"{_S}(?:\\{_S})?\){_S}(?:\\[ ,;]|\}}|:|\$(?={_S}\$))*"
)
_AT_BREAK = (
    rf"(?:^|\n|\s{{2}}|(?<=[:?.;,$])\s|\\q?quad|\s(?=\*\*|L\)))"
    rf"(?:[-*\s]|(?<!\$)\$(?!\$)){{0,8}}(?:{STYLE}{_S}\{{?)?\$?(L)(?:\$|{_S})"
    r"\*{0,2}[).:]\*{0,2}\}?(?=[\s$\\\dA-Z*(-])\*{0,2}"
)
_LABELS = ("[A-Z]", "[a-z]", NUMBERS := "[1-9]")

_Options = dict[str, str]  # label -> text
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
    r"|(?:the )?(?:answer )?(?:options|choices)(?: are)?)\s*[.:]?\Z",
    re.I,
)
_LINE = re.compile(r"(?:\$\$.*?\$\$|[^\n])*", re.S)  # with what it displays
# What is taken from an answer before it is read as an option's letter or as labels.
_STYLING = re.compile(rf"{STYLE}(?![a-z])|\\(?=\W)|[{{}}\s$.]")
_NAMES_OPTIONS = re.compile(
    r"\([A-Za-j]\)|(?:\(?[①-⑩]\)?|\((?:\d|i{1,3}|iv|v)\)|[,，、;]|and)+"
)


def find_choices(
    problem: str, labels: str = _LABELS[0]
) -> tuple[str, _Options, str] | None:
    """The question before its labelled options, these by label, and what follows.

    None without such a list. The last option ends with its line.
    """
    for style in (ANYWHERE, _AT_BREAK):
        marks = _in_order(re.finditer(style.replace("L", labels), problem))
        if len(marks) < 3:
            continue
        ends = [mark.start() for mark in marks[1:]] + [len(problem)]
        *texts, last = (
            problem[mark.end() : end] for mark, end in zip(marks, ends, strict=True)
        )
        # Persons speaking and conditions are lettered too, and the question comes last.
        _, *after = sentences(" ".join(last.split()))
        if "?" not in last and not any(map(ASKS.search, after)):
            line = _LINE.match(last := last.strip())[0]
            options = dict(zip((m[1] for m in marks), [*texts, line], strict=True))
            return problem[: marks[0].start()].strip(), options, last[len(line) :]
    return None


def _in_order(marks: Iterable[re.Match]) -> list[re.Match]:
    """The longest run of labels that follow each other, I left out or not.

    One from the alphabet's start goes before one from F or W; of small letters and
    numbers there is no other.
    """
    runs: dict[str, list[re.Match]] = {}
    for mark in marks:
        back = (chr(ord(mark[1]) - n) for n in (1, 2) if n == 1 or mark[1] == "J")
        run = [*next(filter(None, map(runs.get, back)), []), mark]
        starts = len(run) > 1 or mark[1].isupper() or mark[1] in "a1"
        if starts and (len(runs) == 1 or len(run) > len(runs.get(mark[1], ()))):
            runs[mark[1]] = run
    first = [run for run in runs.values() if run[0][1] in "Aa1" and len(run) > 2]
    return max(first or runs.values(), key=len, default=[])


def to_value(problem: str, answer: str) -> tuple[str, str] | None:
    """The question without its options, and its answer as a value.

    Returns:
      (problem, answer), or None if the question makes no sense without its options, or
      the answer names none of them.
    """
    for labels in _LABELS:
        asked, options, tail = find_choices(problem, labels) or ("", {}, "")
        stem = _ORDERS_A_CHOICE.sub("", asked)
        ended = len(tail.strip(" \n$}\\").split()) <= 2
        if options and ended and not _NEEDS_OPTIONS.search(stem):
            if value := _meant(answer, options, ordered=stem != asked):
                return stem, value
    return None


def with_options(problem: str, answer: str, options: _Options | str) -> tuple[str, str]:
    """A problem and its answer, with the options beside it, unless it has its own."""
    if not options or find_choices(problem):
        return problem, answer
    if isinstance(options, str):
        return f"{problem}\n{options}", answer
    named, texts = [*options], [*options.values()]
    if (own := find_choices("\n".join(["", *texts]))) and len(own[1]) == len(texts):
        texts = [*own[1].values()]
    letters = [chr(ord("A") + i) for i in range(len(texts))]
    if answer in named:
        answer = letters[named.index(answer)]
    elif answer.isdigit() and answer not in map(bare_answer, texts):
        answer = ""  # a place, counted from 0 or from 1
    lines = map("({}) {}".format, letters, map(str.strip, texts))
    return "\n".join([problem, *lines]), answer


def _meant(answer: str, options: _Options, *, ordered: bool) -> str | None:
    """The value of an answer beside options: its own, or that of the one it names.

    Small letters and numbers label parts too: such a letter names an option if none
    says the same, a number if the problem orders to choose.
    """
    value, *values = map(bare_answer, (answer, *options.values()))
    listed = _STYLING.sub("", value) in [_STYLING.sub("", each) for each in values]
    said = _STYLING.sub("", answer).strip("()")
    capital = "".join(options).isupper()
    label = said if capital else said.lower()
    if label in options and (capital or (ordered if label.isdigit() else not listed)):
        return bare_answer(options[label])
    letter = len(said) == 1 and said.isupper()
    return value if listed or capital and not letter else None


def is_choice_answer(answer: str) -> bool:
    """Whether the answer names options or statements rather than a value."""
    return _NAMES_OPTIONS.fullmatch(_STYLING.sub("", answer)) is not None
