"""Splits a cleaned answer into tokens, which are the same for LaTeX and plain text.

A token is (kind, value, spaced); `spaced` says whether space precedes the token. Kinds:
"num" (number), "sym" (variable), "const" (constant), "fn" (function with an argument),
"text" (words), "cmd" (LaTeX command with arguments), "op" (everything else) and "end".
"""

import re
import string
from typing import NamedTuple

from . import tree as t
from .normalize import PRESENTATION, TEXT_COMMANDS, closing_brace
from .unit_table import LETTERS, SHORT
from .units import is_unit

RELATIONS = frozenset(
    "= < > <= >= != approx in notin equiv to parallel perp subset supset subseteq"
    " supseteq".split()
)


class Token(NamedTuple):
    kind: str
    value: str
    spaced: bool


_END = Token("end", "", False)

MAX_TOKENS = 1_500
MAX_DIGITS = 4_000

_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d{1,6}(?![\d.a-zA-Z]))?|\.\d+"
_LATEX_THOUSANDS = r"\d{1,3}(?:\\[,;:]\d{3})+(?!\d)(?:\.\d+)?"
_COMMA_THOUSANDS = r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?"
_REST = (
    r"|(?P<space>(?:\s|~|\\[,;:!\s]|\\(?:q?quad|thinspace)(?![a-zA-Z]))+)"
    r"|(?P<cmd>\\(?:[a-zA-Z]+|.))|(?P<word>[A-Za-z]+)"
    r"|(?P<op><=|>=|!=|==|<>|\*\*|->|\.{2,}|.)"
)
_INSIDE = re.compile(rf"(?P<num>{_LATEX_THOUSANDS}|{_NUMBER}){_REST}", re.DOTALL)
_OUTSIDE = re.compile(
    rf"(?P<num>{_LATEX_THOUSANDS}|{_COMMA_THOUSANDS}|{_NUMBER}){_REST}", re.DOTALL
)

FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth sech csch log ln"
    " lg exp sqrt cbrt abs floor ceil".split()
)
_PREFIXES = frozenset("sin cos tan cot sec csc log ln".split())
_ALIASES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot",
    "cosec": "csc", "Sin": "sin", "Cos": "cos", "Tan": "tan", "arctg": "arctan",
    "Log": "log", "ceiling": "ceil", "Ln": "ln", "operatornamearcsin": "arcsin",
}  # fmt: skip
_SPELLINGS = {
    **dict.fromkeys("dfrac tfrac cfrac nicefrac sfrac".split(), "frac"),
    "dbinom": "binom", "tbinom": "binom", "overrightarrow": "vec", "widehat": "hat",
}  # fmt: skip
_CONSTANTS = {"pi": "pi", "infty": "inf", "infinity": "inf", "oo": "inf", "inf": "inf"}
GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa"
    " lambda mu nu xi rho sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda"
    " Xi Pi Sigma Upsilon Phi Psi Omega".split()
)
# Commands that denote a variable, as a letter does.
_NAMES = GREEK | frozenset(
    "ell hbar angle triangle square star dagger ddagger aleph beth partial nabla forall"
    " exists top bot odot imath jmath Re Im wp mho max min".split()
)
_OPERATORS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "±", "mp": "∓",
    "le": "<=", "leq": "<=", "leqslant": "<=", "leqq": "<=", "lt": "<", "ge": ">=",
    "geq": ">=", "geqslant": ">=", "geqq": ">=", "gt": ">", "ne": "!=", "neq": "!=",
    "bigcup": "cup", "cupdot": "cup", "setminus": "minus", "backslash": "minus",
    "simeq": "approx", "doteq": "approx", "rightarrow": "to", "mapsto": "to",
    "mid": "|", "vert": "|", "lvert": "|", "rvert": "|",
    "{": "set{", "}": "set}", "lbrace": "set{", "rbrace": "set}",
    "circ": "°", "degree": "°", "prime": "'", "ldots": "…", "cdots": "…",
    "dots": "…", "dotsc": "…", "dotsb": "…", "lfloor": "floor(", "rfloor": "floor)",
    "lceil": "ceil(", "rceil": "ceil)", "varnothing": "emptyset", "\\": "row",
    "langle": "(", "rangle": ")", "cr": "row", "newline": "row", "colon": ":",
    "lor": "or", "vee": "or", "land": "and", "wedge": "and", "Vert": "|", "lVert": "|",
    "rVert": "|", "lbrack": "[", "rbrack": "]", "sim": "approx", "thicksim": "approx",
    "thickapprox": "approx", "cong": "approx", "longrightarrow": "to", "implies": "to",
    "Rightarrow": "to", "Longrightarrow": "to", "pounds": "£", "euro": "€", "yen": "¥",
    **{name: name for name in "% $ | # & _ cup cap emptyset over choose".split()},
    **{name: name for name in RELATIONS if name.isalpha()},
}  # fmt: skip
# Commands without arguments, with the kind and value of their token.
_COMMANDS: dict[str, tuple[str, str]] = {
    **{name: ("sym", name.removeprefix("var")) for name in _NAMES},
    **{name: ("const", value) for name, value in _CONSTANTS.items()},
    **{name: ("text", name) for name in ("Pr", "dim", "deg", "rank", "Var", "Cov")},
    **{name: ("fn", _ALIASES.get(name, name)) for name in (*FUNCTIONS, *_ALIASES)},
    **{name: ("op", value) for name, value in _OPERATORS.items()},
}
SHOWN = {
    "set{": r"\{", "set}": r"\}", "floor(": r"\lfloor", "floor)": r"\rfloor",
    "ceil(": r"\lceil", "ceil)": r"\rceil",
}  # fmt: skip
"""Texts of the brackets whose tokens have other values, for messages."""
_WITH_ARGUMENTS = _SPELLINGS.keys() | set(
    "frac sqrt binom overline bar vec hat tilde dot ddot begin end sum prod int lim"
    " mathbb".split()
)
_ENGLISH = frozenset(
    "and or is are the no on of at it up we he so if as to by yes for not all any one"
    " two ten odd even none".split()
)
_UNIT_OR_NOT = frozenset(["min", "sec", "in", "cup"])
_OUTER_SPACE = re.compile(r"\A(?:\\[,;:! ]|[\s~])+|[\s~]+\Z")
_JOINING = re.compile(r"(?:^|(?<=[\s,]))(and|or|AND|OR)(?=\s|$)")
_ONE_LETTER = re.compile(r"\(?([A-Za-z])[).]?")
_MATH = re.compile(r"[=<>^_\\]|(?<=[\w)]) [-+*/] (?=[\w(])")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"  # runs such as abc are products
_VOWEL = re.compile("[aeiouyAEIOUY]")
_ORDINAL = re.compile(r"(?:.*[^1])?(?:1st|2nd|3rd)|.*(?:[04-9]|1[1-3])th")
_PLAIN_OPERATORS = {"**": "^", "==": "=", "<>": "!=", "->": "to"}
# Tokens of single characters, unspaced and spaced, and what may continue them.
_ALONE = {
    c: (Token(kind, c, False), Token(kind, c, True), frozenset(longer))
    for kind, characters, longer in (
        ("op", "()[]{},;:^_/+|", ""),
        ("num", string.digits, string.digits + ".,\\eE"),
        ("sym", set(string.ascii_letters) - set("eiU"), string.ascii_letters),
        ("const", "ei", string.ascii_letters),
    )
    for c in characters
}


def tokenize(text: str, *, group_commas: bool = True) -> list[Token]:
    """Splits a cleaned answer into tokens; the last one has the kind "end".

    If `group_commas`, "1,234" is one number, except inside brackets. Raises
    `Unparsable` if a command is unknown, an argument is missing or unclosed, the text
    has too many tokens, or a number has too many digits.
    """
    tokens: list[Token] = []
    position, spaced = 0, False
    # One entry per open bracket: whether a comma in a number groups its digits there.
    grouping = [group_commas]
    while position < len(text):
        if len(tokens) > MAX_TOKENS:
            raise t.Unparsable(f"has more than {MAX_TOKENS} tokens")
        alone = _ALONE.get(value := text[position])
        if alone and text[position + 1 : position + 2] not in alone[2]:
            if value in "([{":
                last = tokens[-1] if tokens and value == "{" else _END
                is_argument = last.kind == "cmd" or last.value in ("}", "^")
                grouping.append(group_commas and is_argument)
            elif value in ")]}" and len(grouping) > 1:
                grouping.pop()
            tokens.append(alone[1] if spaced else alone[0])
            position, spaced = position + 1, False
            continue
        if value == " ":
            position, spaced = position + 1, True
            continue
        match = (_OUTSIDE if grouping[-1] else _INSIDE).match(text, position)
        assert match is not None  # the pattern matches any character
        kind, value = match.lastgroup, match[0]
        position = match.end()
        if kind == "space":
            spaced = True
            continue
        if kind == "num":
            if len(value) > MAX_DIGITS:
                raise t.Unparsable(f"has a number of more than {MAX_DIGITS} digits")
            if "," in value or "\\" in value:
                value = re.sub(r"[\\,;:]", "", value)
            tokens.append(Token("num", value, spaced))
        elif kind == "word":
            _split_word(value, tokens, spaced, outside=len(grouping) == 1)
        elif kind == "cmd":
            position = _command(text, position, value[1:], tokens, spaced)
            if tokens and tokens[-1].value == "set{":
                grouping.append(False)
            elif tokens and tokens[-1].value == "set}" and len(grouping) > 1:
                grouping.pop()
        else:
            value = "…" if value[:2] == ".." else _PLAIN_OPERATORS.get(value, value)
            tokens.append(Token("op", value, spaced))
        spaced = False
    if tokens and tokens[-1].value in _UNIT_OR_NOT and _after_operand(tokens[:-1]):
        # At the end of the text, "min" after a number is a unit: 15 min.
        tokens[-1] = Token("text", tokens[-1].value, tokens[-1].spaced)
    tokens.append(Token("end", "", spaced))
    return tokens


def _command(
    text: str, position: int, name: str, tokens: list[Token], spaced: bool
) -> int:
    braced_text = name == "rm" and text[position : position + 1] == "{"
    if (arguments := PRESENTATION.get(name)) is not None and not braced_text:
        if name in ("left", "right") and text[position : position + 1] == ".":
            position += 1
        for _ in range(arguments):
            _, position = _braced(text, position)
        return position
    if name in TEXT_COMMANDS:
        content, position = _braced(text, position)
        content = _OUTER_SPACE.sub("", content)
        _text_command(content, tokens, spaced)
        return position
    if name in _WITH_ARGUMENTS:
        name = _SPELLINGS.get(name, name)
        if name in ("begin", "end"):
            content, position = _braced(text, position)
            name = f"{name} {content.strip().rstrip('*')}"
            if "array" in name and text[position : position + 1] == "{":
                _, position = _braced(text, position)
        tokens.append(Token("cmd", name, spaced))
    elif name in _COMMANDS or not name.isalpha():
        tokens.append(Token(*_COMMANDS.get(name, ("sym", name)), spaced))
    else:
        # If \oplus were a variable, G \oplus H would equal H \oplus G.
        raise t.Unparsable(f"has \\{name}, which is not known")
    return position


def _text_command(content: str, tokens: list[Token], spaced: bool) -> None:
    if content == "to" and _after_operand(tokens):
        tokens.append(Token("op", ":", spaced))
        return
    if content[:1] == "(" and ")" not in content:
        tokens.append(Token("op", "(", spaced))
        content = content[1:]
    if match := _ONE_LETTER.fullmatch(content):
        content = match[1]
        known = content in LETTERS and _after_operand(tokens)
        kind = "text" if known else "const" if content in "ei" else "sym"
        tokens.append(Token(kind, content, spaced))
        return
    after_value = _after_operand(tokens) or bool(tokens) and tokens[-1].kind == "const"
    if after_value and _MATH.search(content) and is_unit(content):
        tokens.append(Token("text", content, spaced))
        return
    inner = tokenize(content, group_commas=len(content) > 3)[:-1]
    if content[:1].isdigit() or content[:1] in ("-", "$") and len(content) > 1:
        tokens.extend(inner)
        return
    if after_value and content.rstrip("s") in _UNIT_OR_NOT:
        inner = [Token("text", content, spaced)]
    said = any(token.kind == "text" for token in inner)
    formula = not any(map(str.isalpha, content)) or _MATH.search(content)
    if len(inner) == 1 or formula and not said:
        tokens.extend(inner)
        return
    start, pieces = 0, list[str]()
    for match in _JOINING.finditer(content):
        pieces += [content[start : match.start()], match[1].lower()]
        start = match.end()
    for index, piece in enumerate([*pieces, content[start:]]):
        if index % 2:
            tokens.append(Token("op", piece, True))
        elif words := piece.strip(" ,~"):
            tokens.append(Token("text", words, spaced))
            if piece.rstrip(" ~").endswith(","):
                tokens.append(Token("op", ",", False))


def _after_operand(tokens: list[Token]) -> bool:
    return bool(tokens) and (tokens[-1].kind == "num" or tokens[-1].value in ")}")


def _braced(text: str, position: int) -> tuple[str, int]:
    while position < len(text) and text[position] in " \t\n":
        position += 1
    if position >= len(text):
        raise t.Unparsable("ends before the argument of a command")
    if text[position] != "{":
        return text[position], position + 1
    end = closing_brace(text, position)
    if end is None:
        raise t.Unparsable("has an unclosed brace")
    return text[position + 1 : end], end + 1


def _split_word(
    run: str, tokens: list[Token], spaced: bool, outside: bool = True
) -> None:
    name = _ALIASES.get(run, run)
    after_number = _after_operand(tokens)
    if len(tokens) > 1 and tokens[-1].value == "[" and run.lower() in SHORT:
        after_number = _after_operand(tokens[:-1])  # the unit in "5 [cm]"
    after_words = bool(tokens) and tokens[-1].kind == "text"
    outside |= after_words
    found: tuple[str, str] | None = None
    if name in FUNCTIONS:
        found = "cmd" if name == "sqrt" else "fn", name
    elif run.lower() in _CONSTANTS and len(run) > 1:
        found = "const", _CONSTANTS[run.lower()]
    elif run in GREEK or run in ("ell", "hbar"):
        found = "sym", run.removeprefix("var")
    elif run == "U" and spaced and tokens and tokens[-1].value in (")", "]"):
        found = "op", "cup"
    elif len(run) == 1:
        found = "const" if run in "ei" else "sym", run
    elif after_number and (
        run in ("in", "cup")
        or (not spaced and _ORDINAL.fullmatch(tokens[-1].value + run))
    ):
        found = "text", run
    elif run.lower() in ("approximately", "approx"):
        found = "op", "approx"
    elif run == "to" and after_number and spaced:
        found = "op", ":"
    elif run in ("and", "or", "cup", "union", "in", "OR", "AND"):
        found = "op", {"union": "cup"}.get(run, run.lower())
    elif (after_number or after_words) and run.lower() in SHORT:
        found = "text", run
    elif outside and (spaced or not tokens) and run.lower() in _ENGLISH:
        found = "text", run
    elif run.isupper() and tokens and tokens[-1].value in ("angle", "triangle", "|"):
        tokens.extend(Token("sym", letter, False) for letter in run)
    elif run[:-1] in _PREFIXES:  # for instance sinx and cosA
        tokens.append(Token("fn", run[:-1], spaced))
        _split_word(run[-1], tokens, False)
    elif run in _ALPHABET:
        tokens.extend(Token("sym", letter, False) for letter in run)
    elif len(run) > 2 and (run.isupper() or _VOWEL.search(run)) or len(run) > 4:
        found = "text", run
    else:
        for index, letter in enumerate(run):
            kind = "const" if letter in "ei" else "sym"
            tokens.append(Token(kind, letter, spaced and index == 0))
    if found:
        tokens.append(Token(*found, spaced))


def is_relation(token: Token) -> bool:
    return token.kind == "op" and token.value in RELATIONS
