"""Has the question one answer that a rule can check?"""

import re
from fractions import Fraction

from rl.verifier.parse import tree
from rl.verifier.parse.answers import parse_answer
from rl.verifier.parse.tree import Rel, Sym, symbols, walk
from rl.verifier.parse.units import words_of
from tools.curation import choice, grammar
from tools.curation.grammar import ASKS, QUESTION, any_of, found, sentences
from tools.curation.row import Row
from tools.curation.text import tokens

_PROOF = any_of(
    rf"{grammar.ORDER}prove\b(?! your)|\b(?-i:Prove|Show) that\b",
    rf"{grammar.ORDER}(?:show|demonstrate)\b[^.?]{{0,60}}\b(?:that|by|if)\b",
)
_ASKS_TOO = any_of(rf"{grammar.ORDER}{grammar.FIND}\b", r"\b(?:what|how) (?:is|many)\b")
_MANY_ANSWERS = any_of(
    # of several that would do, one; or scored by its distance
    r"\b(?:find|give|write|add|fill in|provide|choose)\b[^.?]{0,20}?"
    r" (?:an?|any|one|some) (?:(?:possible|of the|of these) )?(?:\w+ ){0,2}"
    r"(?:example|conditions?|basis|fundamental set|value\b[^.?]*\b(?:that|such))\b",
    r"(?<!to\s)\b(?:give|write|provide)(?: down)? (?:an?|one) (?:[\w-]+ ){0,2}(?:number"
    r"|integer|value|function)\b(?![^.?]{0,12}\b(?:on|as|of)\b|[^.?]*\binclusive\b)",
    r"\byour score (?:will|for|on)\b|\W(?-i:[A-Z])\W* is the correct answer\b"
    r"|\bif the correct answer is \W*(?-i:[A-Z])\b|\bestimate (?:of )?\$[A-Z]",
)
_EITHER_OR = re.compile(
    rf"\W*(?:{grammar.STYLE}\s*\{{)?\s*(?:it is )?(?:not )?(?:yes|no|true|false"
    r"|correct|right|wrong|possible|impossible|always|never|sometimes|cannot|not|√|×"
    r"|(?:absolutely |conditionally )?(?:con|di)verge(?:s|nt))\b\W*(?:[,.;].*)?",
    re.I | re.S,
)
# An order that yes or no follows: "Determine whether" is "Does".
_WHETHER = re.compile(r"([Dd])etermine (?:whether|if)((?!.*(?:, or|so|give) )[^?]*)\Z")
# A sentence that nothing but yes or no answers.
_EITHER_OR_QUESTION = re.compile(
    rf"(?:(?=[A-Z])(?i:{grammar.AUXILIARY})"
    rf"|(?:If|Given|When)\b[^?]*,\s*(?:then )?{grammar.AUXILIARY})"
    r"\b(?!\s+(?:not?|you)\b)[^?]*\?\s*"
)
_ASKS_VALUE = any_of(r"\b(?:which|who|where|when|why)\b", r"=[\s$]*\Z", ASKS.pattern)

# A first and a second label of one kind, in brackets or at the start of a line.
_LABELS = (r"(?<![A-Za-z0-9}'])\(%s\)", r"(?:(?m:^)|\*\*)[ \t*#]*%s[.)]\**\s")
_TWO_LABELS = re.compile(
    r"①.*(②)|[Ⅰⅰ].*([Ⅱⅱ])|"
    + "|".join(
        f"{label % one}.*({label % two})"
        for one, two in map(str.split, "1 2|a b|A B|i ii|I II".split("|"))
        for label in _LABELS
    ),
    re.S,
)

# What the labelled then are: conditions of what was asked, or what is to be counted.
_BINDS = any_of(
    r"\b(?:satisf\w+|such that|so that|propert(?:y|ies)|conditions (?:\w+ )?hold"
    r"|(?:how many|exactly \w+) of (?:the|these))\b"
    rf"(?:(?!\b{grammar.FIND})[^.?!]){{0,80}}[?:.]?[^\w.?!]*\Z"
)
_ASKS_EACH = any_of(r"\b(?:values? of|what values?|each)\b")

_OPTIONS_ABSENT = any_of(r"\bwhich\b[^.?:]{0,40} following\b[^:?,&]*\?\W*\Z")
_SAYS_SOMETHING = re.compile(r"[A-Za-z]{2,}|[=,;，；]")
_MATH = r"(?:\$[^$]+\$|\\+\((?:(?!\\+\))[^$])+\\+\))"
# "The sum of the two" and "between the two" are one thing.
_JOINT = r"sum|product|difference|total|relation|of\b|between"
# "Find the area and the perimeter of", but not "find the sum of the length and width".
_BOTH_ASKED = any_of(
    rf"\b{grammar.FIND}(?: (?:all|the|possible|positive|real|natural|integers?|numbers?"
    rf"|values?|lengths?|area|of))* (?:{_MATH},? ?)+and"
    rf" (?:{_MATH}|the (?!{_JOINT})[a-z]+ of [^.?]+)(?: respectively)?"
    r"(?: such that(?:(?! find)[^.?])*)?[.?\s]*$",
    rf"\b(?:{grammar.FIND}|what are) the respective\b",
    rf"\b{grammar.FIND} (?:both )?(?:(?:the|its|their) (?!{_JOINT})[a-z]+, ){{0,2}}"
    rf"(?:the|its|their) (?:(?!{_JOINT})[a-z]{{2,}},? ){{1,2}}and"
    r" (?:(?:the|its|their) )?(?!justify|explain|prove)(?:[a-z]{2,} )?(?:possible )?"
    r"[a-z]{2,}(?: of\b|[.?\s]*$)(?![^.?]*\b(?:sum|product|difference|ratio|their)\b)",
)
_SEVERAL_VALUES = re.compile(r"[,;，；±]|\\pm|\\leq?\b|<|\\begin|\b(?:and|or)\b")

# Words of an answer, and letters that a problem names: alone, or in a formula.
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_PROSE = re.compile(_WORDS.pattern + r"\s+[a-z]{2,}")
_NAMES = re.compile(r"(?<![A-Za-z])(?:[A-Za-z]|[A-Z]+)(?![A-Za-z])")
_COMMAND = re.compile(r"\\+[A-Za-z]+")
_LETTER = re.compile(r"(?!C(?:_\d)?$)([A-Za-z])(?:_\w+)?")  # C, C_1: of integration
_DECIMAL = re.compile(r"(?:.*=)?\s*(-?\d*\.(\d{2,}))(?:[\s\\]*(?:text|mathrm).*)?")
_SAYS_HOW_FAR = any_of(
    r"\bround|nearest|decimal|signific|places?\b|correct to|accura|precis|percent"
)
_FEW_PLACES = any_of(r"nearest (?:\w+th|int|min)|\b(?:two|three|[1-5]) (?:\w+ )?places")
_APPROXIMATE = any_of(rf"(?:{grammar.ORDER}|\bto )(?:approximate|estimate)\b")
_MAY_BE_DECIMAL = any_of(r"\d\.\d|5|\bfi(?:ve|f)|\bten|\b10+\b|00|%")
_PLAIN_WORDS = ("any", "all", "first", "second", "third", "fourth")


def no_answer(row: Row) -> str | None:
    """Neither an answer field nor a box in the solution."""
    return None if row.answers else "no answer, and none in the solution"


def proof(row: Row) -> str | None:
    """A statement to prove, and no value asked for besides that it does not tell."""
    proving = [one for one in sentences(row.problem) if _PROOF.search(one)]
    told = any({*tokens(a)} <= {*tokens(one)} for one in proving for a in row.answers)
    besides = row.answers and _ASKS_TOO.search(row.problem) and not told
    return None if besides else found(_PROOF, row.problem)


def open_question(row: Row) -> str | None:
    """Many right answers, or a guess scored by its distance."""
    return found(_MANY_ANSWERS, row.problem)


def yes_no(row: Row) -> str | None:
    """True or false, one or zero for them: a coin gets half of them right."""
    if any(_EITHER_OR.fullmatch(answer) for answer in row.answers):
        return row.answer
    *_, last = said = sentences(row.problem)
    orders = [one for one in said if ASKS.search(one)] or [last]
    asking = [_WHETHER.sub(r"\1oes\2?", one) for one in orders]
    return last[-60:] if _either_or(last) or all(map(_either_or, asking)) else None


def _either_or(sentence: str) -> bool:
    besides = _ASKS_VALUE.search(sentence[4:].rstrip("? "))
    return not besides and _EITHER_OR_QUESTION.fullmatch(sentence) is not None


def multi_part(row: Row) -> str | None:
    """Several questions, of which the answer covers one.

    Two labels of one kind are parts whatever they label, but for conditions; so are two
    blanks, two questions, or "the area and the perimeter", unless the answer has both.
    """
    match = _TWO_LABELS.search(row.problem)
    if match and not _are_conditions(row.problem, match):
        return row.problem[match.start(match.lastindex) :][:60]
    if any(map(_SEVERAL_VALUES.search, row.answers)):
        return None
    said, blanks = sentences(row.problem), re.split(grammar.BLANK, row.problem)
    asked = [one for one in said if one[-1:] == "?" and _ASKS_VALUE.search(one[:-1])]
    several = [*filter(_SAYS_SOMETHING.search, blanks[1:-1])]
    several += [one for one in asked if one != asked[0]]
    return several[0][-60:] if several else found(_BOTH_ASKED, row.problem)


def _are_conditions(problem: str, labels: re.Match) -> bool:
    """Whether what is labelled states, and one question is about all of it.

    It comes in sentences of its own after the list, or the list ends it.
    """
    first, second = labels.start(), labels.start(labels.lastindex)
    *_, lead = sentences(problem[:first])
    rest = sentences(problem[second:])
    asking = [i for i, one in enumerate(rest) if ASKS.search(one)]
    if ASKS.search(problem[first:second]) or 0 in asking:
        return False
    if asking and _TWO_LABELS.search("\n".join(rest[asking[0] :])):
        return False
    # To place or to choose is no question where another one follows.
    if (QUESTION if asking else ASKS).search(problem[:first]):
        bound = _BINDS.search(lead)
        return bound is not None and not _ASKS_EACH.search(lead)
    return bool(asking)


def multiple_choice(row: Row) -> str | None:
    """Options remain, which tell the answer, or are pointed at and are not there."""
    if any(choice.is_choice_answer(answer) for answer in row.answers):
        return f"answer {row.answer}"
    if choice.find_choices(row.problem):
        return "lettered options"
    return found(_OPTIONS_ABSENT, row.problem)


def free_text_answer(row: Row) -> str | None:
    """Prose that no rule can compare: words that the problem does not name."""
    told = {word.lower() for word in _WORDS.findall(row.problem) if len(word) > 2}
    said = (*told, *_PLAIN_WORDS)
    for answer in row.answers:
        node = parse_answer(answer).node
        written = _WORDS.findall(answer)
        words: list[str] = []
        for part in walk(node) if node is not None else ():
            if isinstance(part, tree.Word):
                words += part.text.split()
            elif isinstance(part, tree.Quantity) and isinstance(part.unit, frozenset):
                words += words_of(part.unit) if len(part.unit) > 1 else ()
            elif isinstance(part, Sym) and part.name in map(str.lower, written):
                words.append(part.name)
        # A unit is told by its stem, a code word by its capitals.
        unknown = [word for word in words if not word.endswith(said)]
        named = " ".join(["", *said, *re.findall(r"\b[A-Z]{2,5}\b", answer)]).lower()
        prose = node is None and _PROSE.search(answer)
        if prose or any(f" {word}" not in named for word in unknown):
            return answer[:60]
    return None


def symbol_answer(row: Row) -> str | None:
    """Names of letters: an option, or a name that the problem lacks."""
    text = _COMMAND.sub(" ", row.problem)
    named = {*"".join(grammar.formulas(text) + _NAMES.findall(text)).lower()}
    for answer in row.answers:
        parsed = parse_answer(answer)
        node = parsed.node
        if node is None or isinstance(parsed.other, tree.Quantity):
            continue
        parts = list(walk(node))
        several = isinstance(node, tree.Several | tree.Braces | tree.Tuple)
        items = node.items if several else [node]
        letters = items and all(isinstance(item, Sym) for item in items)
        if letters and any(re.fullmatch("[A-Z]+", item.name) for item in items):
            return answer
        equal = [part for part in parts if isinstance(part, Rel) and part.op == "="]
        left = [rel.left for rel in equal if not several or not symbols(rel.right)]
        # A line is y = 2x whatever the problem calls it, but x < 2 is about an x.
        labels = set() if isinstance(node, Rel) and node.op != "=" else {*"xyz"}
        labels.update(*(name.lower() for side in left for name in symbols(side)))
        names = {p.name for p in parts if isinstance(p, Sym)} - parsed.parameters
        said = {match[1].lower() for match in map(_LETTER.fullmatch, names) if match}
        periodic = tree.contains(node, (tree.Degrees, tree.Big)) or tree.PI in parts
        if said - named - labels and not periodic:
            return answer
    return None


def rounded_answer(row: Row) -> str | None:
    """A decimal of what is none, and nothing says how far: 0.08333 for a twelfth.

    Exact may be halves, what has few digits as a fraction, and what comes of decimals,
    fives or tens in the problem, but for one to approximate, or over seven places. From
    14 on the verifier knows what was printed. No gold has seven where few were ordered.
    """
    match = _DECIMAL.fullmatch(row.answer)
    if not match or len(row.answers) > 1:
        return None
    if _SAYS_HOW_FAR.search(row.problem):
        return found(_FEW_PLACES, row.problem) if len(match[2]) > 7 else None
    value = abs(Fraction(match[1]))
    short = value.numerator < 1000 or value.denominator.bit_count() == 1
    loose = len(match[2]) > 7 or _APPROXIMATE.search(row.problem)
    given = not loose and _MAY_BE_DECIMAL.search(row.problem)
    return None if short or given or len(match[2]) > 13 else row.answer


CHECKS = (proof, no_answer, open_question, yes_no, multi_part, multiple_choice,
          free_text_answer, symbol_answer, rounded_answer)  # fmt: skip
