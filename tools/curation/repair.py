"""Repairs damaged text where the original is certain."""

import dataclasses
import html
import re
import unicodedata
from collections.abc import Callable

from rl.verifier import extract_answer
from rl.verifier.parse.answers import option_in
from tools.curation.grammar import FORMULA, formulas
from tools.curation.row import Row

# TeX commands whose backslash and first letter were read as an escape sequence.
_ESCAPED = re.compile(
    r"\\?(?:\x08(?=(?:eta|ar|inom|oxed|ullet|oldsymbol|ig|mod|ot)(?![a-z])|egin\{)"
    r"|\t(?=(?:imes|heta|anh?|au|o|riangle|frac|herefore|op|ilde|binom)(?![a-z])"
    r"|ext(?:bf|it|rm)?\s*\{)"
    r"|\n(?=(?:eq|abla|otin|olimits|ewline)(?![a-z]))"
    r"|\f(?=(?:rac|orall|loor|lat)(?![a-z]))"
    r"|\r(?=(?:ight(?:arrow)?|ho|angle|ceil|floor|m)(?![a-z])))"
)
_LETTERS = dict(zip("\b\t\n\f\r", "btnfr", strict=True))
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2028\ufeff]")
_FULL_WIDTH = str.maketrans(
    {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFF01, 0xFF5F)}
    | {0x3002: ". ", 0x3001: ", ", 0x00A0: " ", 0x3000: " "}
)
_BREAK = re.compile(r"<\s*/?\s*(?:br|p|div|center)\b[^<>]*>", re.I)
_SUBSCRIPT = re.compile(r"<su(b|p)>\s*(.*?)\s*</su\1>", re.I | re.S)
_LINK = re.compile(r"(?<!!)\[([^\[\].]*)\]\(https?://(?:[^()\s]|\([^()]*\))*\)")
_ENTITY = re.compile(r"&(?:[A-Za-z]+|#\d+);")
_STYLE = re.compile(
    r"</?(?:b|i|u|em|strong|span|font)(?:\s[^<>]*)?>|\[asy\]\s*\[/asy\]"
    r"|\[/?(?:b|i|u|size|color|center|hide|list)(?:=[^\]]*)?\]",
    re.I,
)
# Instructions to a translating model and its remarks, up to the end of the line.
_ABOUT_TEXT = r"(?:English|Chinese|text|format|request|portion|note|part)"
_TRANSLATION = re.compile(
    r"(?:\n(?:[ -]*\n)*[^\n]*?|(?=\(|(?-i:\b[A-Z]))[^\n.?$]*?)"
    r"(?:源文本|翻译成英文|输出翻译|翻译结果|untranslated|\btranslation:"
    rf"|\btranslat\w+[^\n]*\b{_ABOUT_TEXT}|\b{_ABOUT_TEXT}\b[^\n]*\btranslat)[^\n]*",
    re.I,
)
_END = re.compile(r"(?:\s|~|[.,;]|\\[,;:! ]?|\\q?quad|\\noindent)+(?<!\.\.)$")
# An answer without content: emphasis of Markdown, delimiters of formulas, an empty box.
_EMPTY = re.compile(r"(?:[\s*$`_~#]|\\[\[\]()]|\\f?box(?:ed)?\s*\{\s*\})*")


def repair(row: Row) -> tuple[Row, tuple[str, ...]]:
    """Returns a repaired row, and the names of the repairs that changed it."""
    done: list[str] = []
    problem, answers = row.problem, tuple(row.answers)
    for name, fix in TEXT_REPAIRS.items():
        fixed = fix(problem), tuple(map(fix, answers))
        done += [name] if fixed != (problem, answers) else []
        problem, answers = fixed
    if not any(map(bare_answer, answers)):
        answers = tuple(with_answer(dataclasses.replace(row, answers=())).answers)
        done += ["answer_from_solution"] if answers else []
    bare = tuple(dict.fromkeys(filter(None, map(bare_answer, answers))))
    done += ["answer_markup"] if bare != answers else []
    return dataclasses.replace(row, problem=problem.strip(), answers=bare), tuple(done)


def with_answer(row: Row) -> Row:
    """Returns `row`; if it has no answer, adds the answer in its solution."""
    found = None if row.answers else answer_of_solution(row.solution)
    return dataclasses.replace(row, answers=(found,)) if found else row


def restore_escapes(text: str) -> str:
    """Restores TeX commands whose first two characters became a control character.

    A TAB before `ext{` was `\\text{`; a form feed before `rac{` was `\\frac{`.
    """
    return _ESCAPED.sub(lambda match: "\\" + _LETTERS[match[0][-1]], text)


def plain_markup(text: str) -> str:
    """Replaces layout tags, HTML entities and links by text; removes other markup."""
    # The longest part between remarks about the translation is the problem.
    text = max(_TRANSLATION.split(text), key=len)
    text = _LINK.sub(r"\1", _BREAK.sub("\n", text))
    text = _SUBSCRIPT.sub(lambda m: f"{'_' if m[1] in 'bB' else '^'}{{{m[2]}}}", text)
    text = _STYLE.sub("", text)
    return _ENTITY.sub(lambda m: html.unescape(m[0]).replace("\xa0", " "), text)


def answer_of_solution(solution: str) -> str | None:
    """Returns the content of the last box, or else ANSWER of the last `#### ANSWER`."""
    *_, last = None, *re.finditer(r"#### *(\S.*(?=\s*\Z)|-?\d[\d,.]*(?=\n))", solution)
    return extract_answer(solution) or (last and re.sub(r",(?=\d{3})", "", last[1]))


def bare_answer(answer: str) -> str:
    """Removes markup, option letters, final punctuation and leading zeros of integers.

    For example, `$\\boxed{36}$` becomes `36`, `072` becomes `72`, `B: 4` becomes `4`.
    """
    answer = re.sub(r"\{([-+])\}", r"\1", answer.strip())  # {-}88 is -88
    if "\\begin" not in answer:  # \\frac is \frac
        answer = re.sub(r"\\\\(?=[A-Za-z{}])", r"\\", answer)
    answer = _END.sub("", answer)
    dressed = ""
    while answer != dressed:
        dressed = answer
        if FORMULA.fullmatch(answer) and len(inside := formulas(answer)) == 1:
            answer = inside[0]
        boxed = extract_answer(answer)
        if boxed and len(re.findall(r"\\f?box(?:ed)?\s*\{", answer)) == 1:
            answer = boxed
        option = option_in(answer)
        if option and option.value and option.certain:
            answer = option.value
    if answer.count("$") == 1 and "\\$" not in answer:
        answer = answer.strip("$ ")
    answer = _END.sub("", answer)
    if _EMPTY.fullmatch(answer):
        return ""
    return (answer.lstrip("0") or "0") if answer.isdigit() else answer


TEXT_REPAIRS: dict[str, Callable[[str], str]] = {
    "tex_escapes": restore_escapes,
    "control_characters": lambda text: _CONTROL.sub(
        "", text.replace("\t", " ").replace("\r\n", "\n")
    ),
    "markup": plain_markup,
    "full_width": lambda text: text.translate(_FULL_WIDTH),
}
