"""Finds rows without a gold, and golds such as "yes", "A or B" or prose."""

import functools
import re
from collections.abc import Callable, Sequence

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


def either_or(gold: str, row: Row) -> bool:
    """Finds golds such as "yes", "no" or "odd", which guessing often gets right."""
    return _EITHER_OR.fullmatch(gold) is not None


def repeated_value(gold: str, row: Row) -> bool:
    """Finds golds that are lists or sets with a repeated value."""
    node = parse_answer(gold).node
    if not isinstance(node, tree.Several | tree.Braces):
        return False
    return len({*map(tree.fold, node.items)}) < len(node.items)


def alternative_golds(gold: str, row: Row) -> bool:
    """Finds golds such as "A or B", but not ranges such as "x < 1 or x > 2"."""
    return bool(_ALTERNATIVE.search(gold)) and not _RANGE.search(gold)


def condition_as_gold(gold: str, row: Row) -> bool:
    """Finds golds with a condition, and relations if the problem asks for a relation.

    Conditions in a `cases` environment and functions such as `y = 2x` are allowed.
    """
    if _CONDITION.search(gold) and "{cases}" not in gold:
        return True
    node = parse_answer(gold).node
    if not isinstance(node, Rel) or len(node.names) < 2:
        return False
    function = isinstance(node.left, Sym) and node.op == "="
    return not function and bool(_ASKS_FOR_A_RULE.search(row.problem))


def letter_as_gold(gold: str, row: Row) -> bool:
    """Finds golds that are only a letter, or the name of an option, point or function.

    A list of lower-case letters is allowed. A single lower-case letter is allowed if
    the problem asks for a computation.
    """
    node = parse_answer(gold).node
    items: Sequence[tree.Node | None] = (node,)
    if isinstance(node, tree.Several | tree.Braces | tree.Tuple):
        items = node.items
    names = [item.name for item in items if isinstance(item, Sym)]
    if items and len(names) == len(items):
        alone = len(names) == 1 and not _MANIPULATES.search(row.problem)
        if alone or any(map(str.isupper, names)):
            return True
    bare = _STYLING.sub("", gold)
    stated = bare in row.problem and _NAMES_POINTS.fullmatch(bare)
    return bool(stated or _NAMES_OPTIONS.fullmatch(bare))


def prose_as_gold(gold: str, row: Row) -> bool:
    """Finds golds that are proofs or prose, or have words that the problem lacks.

    Allowed are units, "any", "all", and the problem's words of three or more letters.
    """
    node = parse_answer(gold).node
    if _PROOF.match(gold) or (node is None and _PROSE.search(gold)):
        return True
    written = {word.lower() for word in _WORDS.findall(gold)}
    words: list[str] = []
    for part in walk(node) if node is not None else ():
        if isinstance(part, tree.Word):
            words += part.text.lower().split()
        elif isinstance(part, Sym) and part.name in written:
            words.append(part.name)
    known = [word.lower() for word in _WORDS.findall(row.problem) if len(word) > 2]
    return any(not word.endswith(("any", "all", *known)) for word in words)


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


def _first(test: Callable[[str, Row], bool]) -> Callable[[Row], str | None]:
    """Makes a check that finds the first gold of a row for which `test` is true."""

    @functools.wraps(test)
    def check(row: Row) -> str | None:
        return next((gold[:60] for gold in row.answers if test(gold, row)), None)

    return check


CHECKS = (
    no_answer,
    *map(_first, (either_or, repeated_value, alternative_golds)),
    *map(_first, (condition_as_gold, letter_as_gold, prose_as_gold)),
)
