"""Finds rows without a gold, and golds such as "yes", "A or B" or prose."""

import re
from collections.abc import Sequence

from rl.verifier import extract_answer, is_equivalent, self_check
from rl.verifier.parse import tree
from rl.verifier.parse.answers import parse_answer
from rl.verifier.parse.tree import Rel, Sym, walk
from tools.curation.grammar import STYLE, any_of
from tools.curation.row import Row

_ALTERNATIVE = re.compile(r"(?<![A-Za-z])(?i:or)(?![A-Za-z])|\\(?:lor|vee)\b")
_RANGE = re.compile(r"[<>≤≥]|\\(?:[lg]eq?(?:slant)?|in)(?![a-z])")
_CONDITION = any_of(
    r"(?<![a-z\\])(?:if|when(?:ever)?|unless|iff|otherwise|depends|must)(?![a-z])",
    r"\\(?:if|forall|exists|implies|iff|perp|parallel|cong)(?![a-z])",
    r"^[^{]*(?:\\n?mid(?![a-z])|∣|∤)",
)
_ASKS_FOR_A_RULE = any_of(
    r"\b(?:necessary|sufficient|find|determine|state|derive|what|which)\b[^.?]{0,40}"
    r"\b(?:conditions?|relation(?:ship)?|inequality|criterion)\b"
)
_MANIPULATES = any_of(
    r"\b(?:simplif|in terms of|express|as a function of|factori?[sz]?e?|differentiat"
    r"|derivative|integra|remainder when|compute|calculate|evaluate|product of|sum of"
    r"|(?:number|value|limit|area|length|order|cardinality|degree|probability) of)"
)
_EITHER_OR = re.compile(
    rf"\W*(?:{STYLE}\s*\{{)?\s*(?:it is )?(?:not )?(?:yes|no|true|false"
    r"|odd|even|neither|both|correct|right|wrong|possible|impossible|always|never"
    r"|sometimes|cannot|not|√|×"
    r"|(?:absolutely |conditionally )?(?:con|di)verge(?:s|nt))\b\W*(?:[,.;].*)?",
    re.I | re.S,
)
_PROOF = re.compile(
    rf"\W*(?:{STYLE}\s*\{{)?\s*(?:prove|proof|show|solution|see)\b", re.I
)
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_PROSE = re.compile(_WORDS.pattern + r"\s+[a-z]{2,}")
# Markup that is removed before an answer is compared with names of options.
_STYLING = re.compile(rf"{STYLE}(?![a-z])|\\(?=\W)|[{{}}\s$.]")
_NAMES_OPTIONS = re.compile(
    r"\([A-Za-j]\)|(?:\(?[①-⑩]\)?|\((?:\d|i{1,3}|iv|v)\)|[,，、;]|and)+"
)
_NAMES_POINTS = re.compile(r"[A-Z]{2,4}|[A-Za-z]\([a-z]\)")  # also functions


def no_answer(row: Row) -> str | None:
    """Finds rows that have no answer, also after the repair from the solution."""
    return None if row.answers else "no answer, and none in the solution"


def either_or(row: Row) -> str | None:
    """Finds golds such as "yes", "no" or "odd", which guessing often gets right."""
    return next((a[:60] for a in row.answers if _EITHER_OR.fullmatch(a)), None)


def repeated_value(row: Row) -> str | None:
    """Finds golds that are lists or sets with a repeated value."""
    for answer in row.answers:
        node = parse_answer(answer).node
        if isinstance(node, tree.Several | tree.Braces):
            if len({*map(tree.fold, node.items)}) < len(node.items):
                return answer[:60]
    return None


def alternative_golds(row: Row) -> str | None:
    """Finds golds such as "A or B", but not ranges such as "x < 1 or x > 2"."""
    for answer in row.answers:
        if _ALTERNATIVE.search(answer) and not _RANGE.search(answer):
            return answer[:60]
    return None


def condition_as_gold(row: Row) -> str | None:
    """Finds golds with a condition, and relations if the problem asks for a relation.

    Conditions in a `cases` environment and functions such as `y = 2x` are allowed.
    """
    for answer in row.answers:
        node = parse_answer(answer).node
        if _CONDITION.search(answer) and "{cases}" not in answer:
            return answer[:60]
        if isinstance(node, Rel) and len(node.names) > 1:
            function = isinstance(node.left, Sym) and node.op == "="
            if not function and _ASKS_FOR_A_RULE.search(row.problem):
                return answer[:60]
    return None


def letter_as_gold(row: Row) -> str | None:
    """Finds golds that are only a letter, or the name of an option, point or function.

    A list of lower-case letters is allowed. A single lower-case letter is allowed if
    the problem asks for a computation.
    """
    for answer in row.answers:
        node = parse_answer(answer).node
        items: Sequence[tree.Node | None] = (node,)
        if isinstance(node, tree.Several | tree.Braces | tree.Tuple):
            items = node.items
        names = [item.name for item in items if isinstance(item, Sym)]
        if items and len(names) == len(items):
            named = any(name.isupper() for name in names)
            alone = len(names) == 1 and not _MANIPULATES.search(row.problem)
            if named or alone:
                return answer[:60]
        bare = _STYLING.sub("", answer)
        stated = bare in row.problem and _NAMES_POINTS.fullmatch(bare)
        if stated or _NAMES_OPTIONS.fullmatch(bare):
            return answer[:60]
    return None


def prose_as_gold(row: Row) -> str | None:
    """Finds golds that are proofs or prose, or have words that the problem lacks.

    Allowed are units, "any", "all", and the problem's words of three or more letters.
    """
    known = [word.lower() for word in _WORDS.findall(row.problem) if len(word) > 2]
    known += ["any", "all"]
    for answer in row.answers:
        node = parse_answer(answer).node
        written = {word.lower() for word in _WORDS.findall(answer)}
        words: list[str] = []
        for part in walk(node) if node is not None else ():
            if isinstance(part, tree.Word):
                words += part.text.lower().split()
            elif isinstance(part, Sym) and part.name in written:
                words.append(part.name)
        prose = node is None and _PROSE.search(answer)
        unknown = [word for word in words if not word.endswith(tuple(known))]
        if prose or unknown or _PROOF.match(answer):
            return answer[:60]
    return None


def unverifiable_answer(row: Row) -> str | None:
    """Finds golds that the verifier cannot parse, or judges unequal to themselves."""
    # Slow, so rows that another check drops are skipped.
    for gold in row.answers if row.survives else ():
        answer = extract_answer(f"\\boxed{{{gold}}}")
        fault: str | None
        if answer is None or "\\boxed" in answer:
            fault = "is empty, has an unclosed brace, or contains a box"
        elif not (fault := self_check(answer)):
            fault = None if is_equivalent(answer, gold) else "does not equal itself"
        if fault:
            return f"{gold[:80]}: {fault}"
    return None


CHECKS = (no_answer, either_or, repeated_value, alternative_golds, condition_as_gold,
          letter_as_gold, prose_as_gold)  # fmt: skip
