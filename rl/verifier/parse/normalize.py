"""Normalizes the text of an answer before parsing, by rules in a fixed order."""

import re
import unicodedata
from fractions import Fraction

MAX_ANSWER = 4_000
"""Longer answers are compared as text only."""

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": "\\times ", "·": "\\cdot ",
    "⋅": "\\cdot ", "∙": "\\cdot ", "÷": "/", "⁄": "/", "∕": "/", "≤": "\\le ",
    "≥": "\\ge ", "⩽": "\\le ", "⩾": "\\ge ", "≦": "\\le ", "≧": "\\ge ",
    "≠": "\\ne ", "≈": "\\approx ", "≡": "\\equiv ", "∞": "\\infty ", "∪": "\\cup ",
    "∩": "\\cap ", "∈": "\\in ", "∅": "\\emptyset ", "π": "\\pi ", "√": "\\sqrt ",
    "∛": "\\sqrt[3]", "∜": "\\sqrt[4]", "°": "^{\\circ}", "º": "^{\\circ}",
    "±": "\\pm ", "∓": "\\mp ", "…": "\\ldots ", "⋯": "\\cdots ", "∠": "\\angle ",
    "△": "\\triangle ", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}",
    "′": "'", "’": "'", "‘": "'", "″": "''", "“": '"', "”": '"', "，": ",", "；": ";",
    "：": ":", "（": "(", "）": ")", "、": ",", "。": ".", "￥": "¥", "∣": "|",
    "→": "\\to ", "∑": "\\sum ", "∫": "\\int ", "∏": "\\prod ", "ⁿ": "^{n}",
    "\u200b": "", "\u200c": "", "\u200d": "", "\ufeff": "", "\u2060": "",
    "½": "\\frac{1}{2}", "⌊": "\\lfloor ", "⌋": "\\rfloor ",
    "⌈": "\\lceil ", "⌉": "\\rceil ", "∖": "\\setminus ", "⊥": "\\perp ",
    "且": " and ", "或": " or ", "和": " and ", "与": " and ", "及": " and ",
    "～": "~", "％": "%", "＝": "=", "＋": "+", "｜": "|", "∗": "*", "∶": ":",
    "˚": "^{\\circ}", "¢": "\\text{ cents}",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon",
    "ζ": "zeta", "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda",
    "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi", "ρ": "rho", "σ": "sigma", "τ": "tau",
    "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma",
    "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Σ": "Sigma", "Φ": "Phi",
    "Ψ": "Psi", "Ω": "Omega", "ℓ": "ell", "ħ": "hbar",
}  # fmt: skip
_CIRCLED = "①②③④⑤⑥⑦⑧⑨⑩"
_TABLE = str.maketrans(_UNICODE | {k: f"\\{v} " for k, v in _GREEK.items()})
_SCRIPTS = {"^": re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+"), "_": re.compile("[₀₁₂₃₄₅₆₇₈₉]+")}

# Matches escapes that a JSON or Python string has interpreted by mistake: "\frac"
# became a form feed and "rac".
BROKEN_ESCAPE = re.compile(
    r"\x0c(?=rac)|\x08(?=egin|inom|oxed|ar\b|eta)|\x07(?=lpha|pprox|ngle)"
    r"|\t(?=ext|imes|heta|an\b|frac|riangle|au\b|o\b)|\r(?=ight|ho\b|angle)|\x0b(?=ec)"
)
_ESCAPE_LETTER = {
    "\x0c": "\\f", "\x08": "\\b", "\x07": "\\a", "\t": "\\t", "\r": "\\r", "\x0b": "\\v"
}  # fmt: skip
# Text-mode commands for single characters, which converters write: \textless.
_OUTSIDE_MATH = {
    "backslash": "\\", "dollar": "\\$", "less": "<", "greater": ">", "asciitilde": "~",
    "asciicircum": "^", "quotesingle": "'", "degree": "\\circ ", "circ": "\\circ ",
}  # fmt: skip
_ESCAPED = re.compile(rf"\\text({'|'.join(_OUTSIDE_MATH)})(?![a-zA-Z])(?:\{{\}}|\s)?")
_EMPTY_RAISED = re.compile(r"\^\{\s*\}\s*(?=\\circ)")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z]{2}|[{}%$,!;()\[\]])")
_ROW_SPACE = re.compile(
    r"(\\\\)\*?\s{0,3}\[\s{0,3}-?\.?\d[\d.]{0,6}\s{0,3}"
    r"(?:pt|em|ex|mm|cm|in|px|mu|bp)\s{0,3}\]"
)
# Matches signs and names in braces that only change the space around them: {+}, {x}_1.
_BRACED = re.compile(
    r"\{(?<![\^_a-zA-Z]\{)\s*([-+=<>.]|\\%|\\?(?:sin|cos|tan|cot|sec|csc|log|ln|lg)"
    r"|(?:[a-zA-Z]|\\[a-zA-Z]+)(?=\s*\}\s*[_^']))\s*\}"
)
_NEGATED = re.compile(r"\\not\s*(=|\\in(?![a-zA-Z]))")
_DELIMITER = re.compile(r"\\(?<!\\\\)[()\[\]]")
_DOLLAR, _AMOUNT = re.compile(r"(?<!\\)\$"), re.compile(r"[-(~ ]*\$\d")
# Matches a set builder without its braces: x | x > 2.
_BUILDER = re.compile(r"([a-z])\s*(?:\||\\mid\b)([^|<>=\\]*[<>=\\][^|]*)")
_SPACED_THOUSANDS = re.compile(r"([-+]?)(\d{1,3}(?:(?:\\ |[ ~])\d{3})+)(\.\d+)?")
_ONE_ARGUMENT = r"\s*(\{[^{}]{1,40}\}|\w)\s*"
_CHOICES = re.compile(
    rf"(?<![\w)}}\]])(?:\{{\s*\}}\s*)?[_^]{_ONE_ARGUMENT}C\s*_{_ONE_ARGUMENT}"
)
_PRIMES = re.compile(r"\s*\^\s*(?:\\prime(?![a-zA-Z])|\{((?:\s*\\prime)+)\s*\})")
_HALF_DAY = re.compile(r"(?i)(?<=[\d\s{])([ap])\.[ ]?m\b\.?")
_CURRENCIES = {"Rs": "₹", "USD": "\\$", "EUR": "€"}
# Matches the code of a currency before an amount: \text{USD } 180, US\$40.
_CURRENCY_CODE = re.compile(
    rf"(?<![A-Za-z])(?:({'|'.join(_CURRENCIES)})\.?(?=(?:\\[ ,;:]|[\s~}}])*\d)"
    r"|U\.?S\.?(?=[\s~}]*\\?\$))"
)
# Match {\rm cm} and 4.5 \mathrm{e} 33.
_OLD_ROMAN = re.compile(r"\{\s*\\rm(?![a-zA-Z])\s*([^{}]{1,40})\}")
_UPRIGHT_E = re.compile(r"(?<=\d)\s*\\(?:mathrm|text)\s*\{\s*([eE])\s*\}\s*(?=[-+]?\d)")
_GROUPED = re.compile(r"(?<=\d),(?:\\!)?(?=\d{3})")
_MAX_LAYERS = 16

TEXT_COMMANDS = frozenset(
    "text textbf textit textrm textsf texttt mathrm mathit mathsf mbox hbox emph"
    " operatorname mathop textnormal textsc rm".split()
)
"""Commands whose argument is text: words, a unit, a name or a formula."""
TEXT_COMMAND = rf"\\(?:{'|'.join(sorted(TEXT_COMMANDS))})(?![a-zA-Z])\s*"
_BRACES = re.compile(r"(?s:\\.)|[{}]")
_INTRODUCING = (
    "the final answer is are equals equal to exactly so thus hence therefore value we"
    " get have it solution solutions only there option choice about approximately"
    " roughly at"
)
_NAMING = "point pair ordered triple vector interval set"  # only before brackets
# Matches words before a value: \text{Answer: 7}, \text{Choice (C)}, but not AT, TB.
_INTRODUCTION = re.compile(
    rf"(?:最终|最后)?(?:答案|结果|解)(?:是|为)?[:\s]*|((?:{TEXT_COMMAND}\{{\s*)?)"
    rf"(?![A-Z]{{2}}\b)(?i:(?:(?:{_INTRODUCING.replace(' ', '|')})\b"
    r"(?:\s?:|(?<=\w{3}),)?\s*+)*"
    r"(?!(?<=[a-z])-|(?<=\b[ai]t\s)-\s|[+^_*/])"
    rf"(?:(?:(?:{_NAMING.replace(' ', '|')})\b\s*+)+"
    r"(?=\W*(?:\\left|\\langle|[(\[{])))?)(?:(\})\s*:)?(?=\}?\s*[^\s},;])"
)
SCALE = re.compile(
    rf"(?:\^\s*\{{?\s*\\circ|\\degree)\s*\}}?\s*(?:{TEXT_COMMAND}(\{{)?\s*)?"
    r"([CF])(?![a-zA-Z])(?(1)\s*\})"
)
_LOOKS = (
    "displaystyle textstyle scriptstyle scriptscriptstyle tiny scriptsize footnotesize"
    " small normalsize large Large LARGE huge Huge bm boldsymbol bf rm it sf tt mathbf"
    " mathit mathsf mathtt mathcal mathscr mathfrak mathnormal pmb underline underbrace"
    " overbrace left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr"
    " Biggl Biggr limits nolimits mathstrut strut boxed fbox framebox centering"
    " noindent indent hfill hfil smash mathclap uline bold mathrel mathbin mathord"
    " ensuremath protect cal em relax unboldmath boldmath allowbreak nobreak"
)
_LOOKS_WITH_ARGUMENT = (
    "color textcolor colorbox hspace vspace mspace label tag phantom hphantom vphantom"
    " kern style class cssId href"
)
PRESENTATION: dict[str, int] = (
    dict.fromkeys(_LOOKS.split(), 0)
    | dict.fromkeys(_LOOKS_WITH_ARGUMENT.split(), 1)
    | {"fcolorbox": 2}
)
"""Styling commands, with the number of arguments that are removed with each."""
_QUOTED = re.compile(r'(\*\*|")((?:(?!\1).)+)\1', re.DOTALL)
_COMMAND = re.compile(r"\\([a-zA-Z]+)\*?\s*")
_SPACE = r"\\[,;:!> ]|\\(?:quad|qquad|hfill|hfil|par|newline)(?![a-zA-Z])"
_HEAD = re.compile(
    rf"(?:{_SPACE}|\{{\}}|\\(?:therefore|because)(?![a-zA-Z])|[\s~`,∴])+"
)
_TAIL = re.compile(
    rf"(?:\\\\|{_SPACE}|\\(?:checkmark|blacksquare|square|Box|qed)(?![a-zA-Z])"
    r"|\\text\{[.,;]\}|\\$|\{\}|(?<!\.)\.|[\s,;:~`✓✔])+$"
)
# Matches most texts that _TAIL does not match, much faster.
_WHOLE = re.compile(r"(?s).*(?:[^\W_dlrekx]|[)\]]|[^{.,;]\})")


def _decode_unicode(text: str) -> str:
    for mark, characters in _SCRIPTS.items():
        text = characters.sub(rf"{mark}{{\g<0>}}", text)
    return "".join(_decode_character(c) if c > "\x7f" else c for c in text)


def _decode_character(char: str) -> str:
    if (mapped := _TABLE.get(ord(char))) is not None:
        return mapped
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category == "No" and "FRACTION" in unicodedata.name(char, ""):
        value = Fraction(unicodedata.numeric(char)).limit_denominator(1000)
        return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
    if char in _CIRCLED:
        return f", {_CIRCLED.index(char) + 1}, "
    if category == "Zs":
        return " "
    folded = unicodedata.normalize("NFKC", char)
    return folded.translate(_TABLE) if len(folded) <= 4 else char


def clean(text: str) -> str:
    """Rewrites an answer in LaTeX, in ASCII if possible.

    Removes math delimiters, and styling and punctuation around the whole answer. The
    text must have at most MAX_ANSWER characters.
    """
    if not text.isascii():
        text = _decode_unicode(text)
    if "{" in text:
        text = text.replace("{,}", "\\,").replace("{:}", ":")
        text = _BRACED.sub(lambda m: m[1] + " " * m[1][-1].isalpha(), text)
    if "\\" in text or "\t" in text or "\x0c" in text or "\x08" in text:
        if not text.isprintable():
            text = BROKEN_ESCAPE.sub(lambda m: _ESCAPE_LETTER[m[0]], text)
        if "\\text" in text:
            text = _ESCAPED.sub(lambda m: _OUTSIDE_MATH[m[1]], text)
        if "\\\\" in text:
            text = _ROW_SPACE.sub(r"\1 ", text)
            if "\\begin" not in text or "\\\\begin" in text:
                text = _DOUBLED.sub(r"\\", text)
        if "\\circ" in text:
            text = SCALE.sub(r"\\text{ degrees \2}", text)
            text = _EMPTY_RAISED.sub("^", text)
        if "\\prime" in text:
            text = _PRIMES.sub(lambda m: "'" * (m[1] or "prime").count("prime"), text)
        if "\\not" in text:
            text = _NEGATED.sub(lambda m: "\\ne " if m[1] == "=" else "\\notin ", text)
        text = text.replace("\\!", "")
        if "rm" in text or "\\text" in text:
            text = _OLD_ROMAN.sub(lambda m: f"\\mathrm{{{m[1]}}}", text)
            text = _UPRIGHT_E.sub(r"\1", text)
    if "C" in text and "_" in text:
        text = _CHOICES.sub(r"\\binom \1 \2 ", text)
    text = _undressed(text)
    if text[:1].isalpha() or text[:2] in ("\\t", "\\m"):
        if found := _INTRODUCTION.match(text):
            text = "".join(filter(None, found.groups())) + text[found.end() :]
    if "\\" in text and _DELIMITER.search(text):
        text = _undressed(_DELIMITER.sub(" ", text))
    if "$" in text:
        text = _undressed(_drop_delimiters(text))
    if text[-1:] == "}" and text.count("}") > text.count("{"):
        text = text[:-1].rstrip()
    if ("|" in text or "\\mid" in text) and (builder := _BUILDER.fullmatch(text)):
        text = rf"\{{{builder[1]} | {builder[2]}\}}"
    text = text.replace("o'clock", "oclock")
    if "." in text and "m" in text.lower():
        text = _HALF_DAY.sub(r" \1m", text)
    if "S" in text or "R" in text:
        text = _CURRENCY_CODE.sub(lambda m: _CURRENCIES.get(m[1], ""), text)
    if (" " in text or "~" in text) and _SPACED_THOUSANDS.fullmatch(text):
        text = text.translate({ord(char): None for char in " ~\\"})
    return text


def closing_brace(text: str, position: int) -> int | None:
    """Returns the index of the brace that closes the one at `position`, if any."""
    depth = 0
    for mark in _BRACES.finditer(text, position):
        depth += (mark[0] == "{") - (mark[0] == "}")
        if depth == 0:
            return mark.start()
    return None


def _undressed(text: str) -> str:
    for _ in range(_MAX_LAYERS):
        before = text
        if not text[:1].isalnum() and (space := _HEAD.match(text)):
            text = text[space.end() :]
        if not _WHOLE.fullmatch(text):
            tail = _TAIL.search(text, max(0, len(text) - 200))
            text = text[: tail.start()] if tail else text
        if text[:1] in '*"' and (quoted := _QUOTED.fullmatch(text)):
            text = quoted[2]
        text = _without_look(text) if text[:1] in "\\{" else text
        if text == before:
            break
    return text


def _without_look(text: str) -> str:
    at, dressed = 0, False
    if command := _COMMAND.match(text):
        skipped = PRESENTATION.get(command[1])
        if skipped is None or command[1] in ("left", "right", "middle"):
            return text
        at, dressed = command.end(), True
        for _ in range(skipped):
            end = closing_brace(text, at) if text[at : at + 1] == "{" else None
            if end is None:
                return text
            at = end + 1
        if text[at : at + 1] != "{":
            return text[at:]
    if text[at : at + 1] == "{" and text[-1] == "}":
        inner = text[at + 1 : -1]
        if closing_brace(text, at) == len(text) - 1 and (
            dressed or "," not in _GROUPED.sub("", inner)
        ):
            return inner
    return text


def _drop_delimiters(text: str) -> str:
    r"""Removes dollar signs, but keeps `\$` and an unpaired one at the start: $5."""
    if len(_DOLLAR.findall(text)) % 2 == 1 and _AMOUNT.match(text):
        text = text.replace("$", "\\$", 1)
    return _DOLLAR.sub(" ", text).strip()


_STYLE = re.compile(
    rf"{TEXT_COMMAND}|\\(?:mathbf|bf|left|right|displaystyle|quad|qquad|boxed)"
    r"(?![a-zA-Z])|\\[,;:!\s]"
)
_NAMED = re.compile(r"(\\(?<!\\\\)[a-zA-Z]+)")
_NOT_WORD = re.compile(r"[\s{}$~*]+")
_PUNCTUATION = re.compile(r"(?<=\w)[.,;:?]+(?=\s|$)")


def squeezed(text: str) -> str:
    """Returns a cleaned answer with single spaces between words and around commands."""
    return " ".join(" ".join(_NAMED.split(text)).split())


def plain_text(text: str) -> str:
    """Removes the formatting of words, and the punctuation after them."""
    words = _NOT_WORD.sub(" ", _STYLE.sub(" ", text))
    return " ".join(_PUNCTUATION.sub("", words).split())
