"""Is it one question, or several under (1), (2), ...?

Labels are not enough: `f(1) + f(2)` is a value, and `(1) a < b; (2) b < c` after
"satisfying" are conditions of one question. What tells parts apart is who asks: either
the first labelled segment asks something itself, or the words before it ask for each of
what follows ("Calculate:", "Find the probability that:").
"""

import re

_FAMILIES = (
    ("1", "2"),
    ("a", "b"),
    ("i", "ii"),
    ("I", "II"),
    ("A", "B"),
    ("①", "②"),
    ("Ⅰ", "Ⅱ"),
    ("ⅰ", "ⅱ"),
    ("½1", "½2"),
)
_CIRCLED = "①②ⅠⅡⅰⅱ"
# A value of a function or a reference back to a part is not a label.
_NOT_LABEL = re.compile(
    r"(?:[A-Za-z0-9_})'\]|]|\\[A-Za-z]+\s*|(?<![A-Za-z])[A-Za-z]\s*"
    r"|\b(?:of|in|from|by|parts?|conditions?|equations?|steps?|case|and|or|with|than"
    r"|using|statements?|propositions?|results?|to|both)\s*\$?\s*)$"
)
_ASK_WORDS = (
    r"find|determine|calculate|compute|evaluate|simplify|solve|prove|show|what|which|how"
    r"|write|express|estimate|identify|factor(?:ize)?|expand|state|explain|describe|give"
    r"|judge|discuss|seek|please|draw|list|complete|fill|convert|verify|when|where|who"
    r"|is|are|does|do|can|guess|translate|prove|try|conjecture|directly|use|point out|predict"
)
_ASKS = re.compile(
    rf"(?<![A-Za-z\\])(?:{_ASK_WORDS})\b|\?|_{{2,}}|(?:\\_\s*){{2,}}", re.I
)
_OPENS_WITH_ASK = re.compile(
    rf"^[\s.:$*\\)]*(?:please |then |also |next |directly |now )?(?:{_ASK_WORDS})\b",
    re.I,
)
_COMMANDS = (
    r"find|determine|calculate|compute|evaluate|simplify|solve|prove|show|write|express"
    r"|estimate|identify|factorize|explain|discuss|what|which|how many|how much"
)
_SENTENCE_ASKS = re.compile(
    rf"(?:[.,:;!]\s+|\$,?\s+|\n)\s*(?:then |please |and |try to )?(?:{_COMMANDS})\b",
    re.I,
)
_STEM_IS_ASK = re.compile(
    r"(?:^|[.;,]\s*|\b(?:and|then|please|to)\s+)(?:find|calculate|compute|evaluate|simplify"
    r"|solve|determine|seek|answer|complete|factor|expand)"
    r"(?: (?:each of )?the (?:(?:values?|probability|probabilities) of (?:each of )?the )?"
    r"following[\w\s]*)?\s*[:：]\s*$",
    re.I,
)
_STEM_ASKS_EACH = re.compile(
    r"(?:^|[.;,:\n]|\band\b|\bplease\b|\bthen\b|\brequired to\b)\s*(?:please\s+|try to\s+)?"
    r"(?:calculate|compute|evaluate|simplify|solve|find|determine|expand|factor(?:ize)?"
    r"|prove|answer|complete|fill|seek|write)\b[^?]*$",
    re.I,
)
_EACH_CASE = re.compile(
    r"(?:\b(?:under|for|in|with|according to)\b[^.?]*\b(?:following|each|these)\b[^.?]*"
    r"[?:.]*|\bif|\bwhen|\bto be|\bthat|\bcan be formed|\bsuch that)\s*[?:,.-]*\s*$",
    re.I,
)
_CONDITIONS = re.compile(
    r"\b(?:satisf\w*|such that|propert\w*|conditions?|rules?|constraints?|criteri\w*"
    r"|statements?|propositions?|conclusions?|operations?|axioms?|facts?|information"
    r"|procedure|steps|moves?|inequalities|requirements|assumptions|hold|if and only if"
    r"|defined|called|observations|clues|sequence)\b"
    r"[^.?]{0,80}$",
    re.I,
)
_PART = re.compile(
    r"\*\*p\d\.\*\*.*\*\*p\d\.\*\*|(?:^|\n|[.;:?]\s)\s*\**(?:part|question|problem|subproblem)\s*"
    r"\(?(?:1|a|A|i|I)\)?\s*[.:)*].*?(?:part|question|problem|subproblem)\s*"
    r"\(?(?:2|b|B|ii|II)\)?\s*[.:)*]",
    re.I | re.S,
)


def multiple_parts(problem: str) -> str | None:
    """The first words of the second part of a several-part problem, or None."""
    named = _PART.search(problem)
    if named:
        return named[0][-40:]
    for first, second in _FAMILIES:
        found = _find_labels(problem, first, second)
        if found is None:
            continue
        stem_end, first_start, second_label, second_start = found
        stem = problem[:stem_end]
        segment = problem[first_start:second_label]
        rest = problem[second_start:]
        if _are_parts(stem, segment, rest):
            return problem[second_label : second_label + 60]
    return None


def _are_parts(stem: str, first: str, rest: str) -> bool:
    if not stem.strip():
        return True
    stem = stem.rstrip(" \n$\\(-*")
    tail = re.split(r"(?<=[.!?])\s+|\n", stem)[-1]
    if _STEM_IS_ASK.search(tail) and not _CONDITIONS.search(tail):
        return True
    if _segment_asks(first):
        return True
    if _EACH_CASE.search(stem) and _EACH_CASE_ASKS.search(tail):
        return not _trailing_question(rest)
    if _CONDITIONS.search(tail) or tail.endswith("?"):
        return False
    if tail.endswith(":") and _ASKS.search(tail):
        return not _trailing_question(rest)
    return bool(_STEM_ASKS_EACH.search(tail)) and not _trailing_question(rest)


_EACH_CASE_ASKS = re.compile(
    r"\bhow many (?:different |distinct )?(?:ways|arrangements|methods|numbers)|\bhow many\b"
    r"|\bfind the (?:probability|number)|\bprobability\b|\bwhat (?:value|values|is)\b"
    r"|\bcalculate\b|\bfind\b|\bdetermine\b",
    re.I,
)


def _segment_asks(segment: str) -> bool:
    if segment.rstrip(" \n;.$").endswith("?") or re.search(r"_{2,}|\\_", segment):
        return True
    return bool(_OPENS_WITH_ASK.match(segment) or _SENTENCE_ASKS.search(segment))


def _trailing_question(rest: str) -> bool:
    """Whether a new paragraph or sentence after the last label asks the real question."""
    after = re.split(r"\n|(?<=[.;])\s+(?=[A-Z])", rest.strip())[1:]
    return any(
        _ASKS.search(piece) and not re.match(r"\s*[-*$\\]*\(?\w{1,3}[.)]", piece)
        for piece in after
    )


def _find_labels(
    problem: str, first: str, second: str
) -> tuple[int, int, int, int] | None:
    """Where the stem ends, the first segment starts, and the second label spans."""
    one = _label_at(problem, first, 0)
    if one is None:
        return None
    two = _label_at(problem, second, one[1])
    if two is None:
        return None
    return one[0], one[1], two[0], two[1]


def _label_at(problem: str, label: str, start: int) -> tuple[int, int] | None:
    if label in _CIRCLED:
        pattern = re.escape(label)
    elif label == "A" or label == "B":
        pattern = rf"\b[Pp]art {label}\b"
    elif label.startswith("½"):
        pattern = rf"(?:^|\n)[ \t]*{label[1:]}[.)](?=\s)"
    else:
        pattern = rf"\\*\(?\$*\(\s*{label}\s*\)|(?:^|\n)[ \t]*{label}\)(?=\s)"
    for match in re.compile(pattern).finditer(problem, start):
        before = problem[: match.start()]
        if not _NOT_LABEL.search(before[-40:].rstrip("\n") if before else ""):
            return match.start(), match.end()
        if match[0].startswith("\n") or before.endswith("\n") or label in _CIRCLED:
            return match.start(), match.end()
    return None
