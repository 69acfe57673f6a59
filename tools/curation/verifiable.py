"""Has the question one answer that a rule can check?"""

import re

from tools.curation import choice
from tools.curation.parts import several_values, two_labels
from tools.curation.patterns import any_of, found, snippet
from tools.curation.row import Row

_STARTS = r"(?:^|[.!?;:,)\]$\n’\"]\s*|\b(?:and|then|also|or|please|hence|thus)\s+)"
_PROOF = any_of(
    rf"{_STARTS}(?:prove|show|demonstrate)\b"
    r"(?! (?:your|all|me|up|the (?:work|steps|process|calculation)))"
    r"\s*(?:,?\s*(?:that|the|by|it|if|for|there|\(|:|\$|\\)|[^.?]{0,60}\bthat\b)",
    r"\b(?:prove|show|proving) that\b",
    r"\bprove or disprove\b",
)
_NOT_A_TASK = any_of(
    r"\bit (?:can|could|may|is) (?:be )?(?:shown?|proven?|proved)",
    r"\b(?:wants?|wanted|tries|tried|trying|able|used?|attempts?) to (?:prove"
    r"|show) that",
    r"\bto show that",
    r"\bstudents? to prove",
)
_MANY_ANSWERS = any_of(
    r"\b(?:give|find|write|provide|state|construct|propose|list|name)\b(?: down| me)?"
    r"[^.?]{0,30}\b(?:an?|any|one|some) (?:\w+ ){0,2}(?:counter-?)?examples?\b",
    r"\b(?:write|fill in|give|list|provide|name|need)\b[^.?]{0,30}\b(?:only|just"
    r"|any) one\b",
    r"\b(?:only|just|any) one (?:answer|example|suffices|will do|is (?:enough"
    r"|sufficient|"
    r"needed|required|necessary))\b",
    r"\bwrite (?:down )?one (?:possible )?(?:value|number|answer|solution)\b",
    r"\bany (?:valid|suitable) (?:answer|value|number|example)\b",
    r"\b(?:find|write|give|name) (?:down )?(?:one|any|some) (?:\w+ ){0,2}(?:pair|triple"
    r"|set|solution|value|function|equation|expression|polynomial)\b",
    r"\bwrite (?:down )?an? (?:\w+ ){0,4}(?:function|equation|expression|inequality"
    r"|proposition|monomial|polynomial|sequence)\b[^.?]{0,40}\b(?:that|such|whose|which"
    r"|satisf\w+|with)\b",
    r"\b(?:find|give|write|determine) an? (?:possible )?value (?:of|for) [^.?]{1,40}"
    r"\b(?:that|such|which)\b",
    r"\bnecessarily the (?:smallest|largest)\b",
    r"\b(?:add|fill in|supply|give|write) (?:down )?(?:a|one|any|an additional) "
    r"(?:\w+ )?condition\b",
    r"\b(?:choos|select|pick)\w* (?:any )?one (?:condition )?(?:of|from|among) (?:the "
    r"|these )?(?:\w+ ){0,3}conditions?\b",
    r"\bif multiple conditions are (?:chosen|selected|answered)\b",
    r"\banswers? (?:may|can) vary\b",
    r"\bin your opinion\b|\bwhat do you think\b",
)
_GUESSED = any_of(
    r"\byour score will be\b",
    r"\bestimate \$[A-Za-z]\$",
    r"\bpoints? if your\b",
    r"\bestimate of [^.]{1,20} will (?:earn|receive|be awarded)",
)
_ESSAY = any_of(
    rf"{_STARTS}(?:explain (?:why|how|the|in|what)|describe|discuss|sketch|design"
    rf"|propose"
    r"|comment on|make up|create|invent|compare and contrast|analy[sz]e)\b",
)
_OTHER_ASK = any_of(
    r"\?",
    r"(?<![a-z\\])(?:find|determine|compute|calculate|what is|how many|how much"
    r"|evaluate"
    r"|solve|simplify)\b",
    r"_{2,}|(?:\\_\s*){2,}",
)
_EITHER_OR = re.compile(
    r"\W*(?:\\(?:text|textbf|mathrm|mbox)\s*\{)?\s*(?:yes|no|true|false|correct|incorrect"
    r"|right|wrong|possible|impossible|always|never|sometimes|not? (?:possible"
    r"|necessarily)|it is (?:not )?possible|cannot|not|agree|disagree|valid|invalid"
    r"|√|×)"
    r"\b\W*(?:[,.;].*)?",
    re.I | re.S,
)
_ASKS_EITHER_OR = any_of(
    r"\btrue or false\b",
    r"\byes or no\b",
    r"[(\"]t(?:rue)? ?/ ?f(?:alse)?[)\"]",
    r"\bjudge (?:whether|if) the [^.]* (?:is|are) (?:correct|true|right)",
    r"\banswer (?:yes|true)\b",
)
_VERB = (
    "(?:did|does|do|is|are|was|were|can|could|will|would|has|have|should)"
    r"(?!\s+not?\b)\b"
)
# The last sentence, when nothing but yes or no answers it.
_EITHER_OR_QUESTION = re.compile(
    rf"(?:(?=[A-Z])(?i:{_VERB})|(?:If|Given|When|Assuming)\b[^?]*,\s*(?:then )?{_VERB})"
    r"[^?]*\?\s*"
)
_SENTENCE_BREAK = re.compile(r"(?<=[.?])\s+(?=[A-Z])|\n")
_ASKS_VALUE = any_of(
    r"\b(?:what|which|how|who|where|when|why|find|determine|calculate|provide|at)\b",
    r"_{2,}",
    "=",
)
_LETTER_ASKED = any_of(
    r"\benter the letters?\b",
    r"\bletter of the correct\b",
    r"\bwhich of the (?:following|graphs)\b",
)


def no_answer(row: Row) -> str | None:
    """Neither an answer field nor a box in the solution."""
    return None if row.answers else "no answer, and none in the solution"


def proof(row: Row) -> str | None:
    """A statement to prove."""
    for match in _PROOF.finditer(row.problem):
        around = row.problem[max(0, match.start() - 40) : match.end() + 10]
        if not _NOT_A_TASK.search(around):
            return snippet(row.problem, match)
    return None


def open_question(row: Row) -> str | None:
    """Many right answers, an essay, or a guess scored by its distance."""
    open_ended = found(_MANY_ANSWERS, row.problem) or found(_GUESSED, row.problem)
    if open_ended or _OTHER_ASK.search(row.problem):
        return open_ended
    return found(_ESSAY, row.problem)


def yes_no(row: Row) -> str | None:
    """True or false, yes or no: a coin gets half of them right."""
    if any(_EITHER_OR.fullmatch(answer) for answer in row.answers):
        return row.answer
    last = _SENTENCE_BREAK.split(row.problem.strip())[-1]
    if _EITHER_OR_QUESTION.fullmatch(last) and not _ASKS_VALUE.search(last[4:]):
        return last[-60:]
    if any(re.search(r"\d", answer) for answer in row.answers):
        return None
    return found(_ASKS_EITHER_OR, row.problem)


def multi_part(row: Row) -> str | None:
    """Several questions, of which the answer covers one."""
    return two_labels(row.problem) or several_values(row.problem, row.answers)


def multiple_choice(row: Row) -> str | None:
    """Options remain: nothing but the letter, or the list itself, tells the answer."""
    if any(choice.is_choice_answer(answer) for answer in row.answers):
        return f"answer {row.answer}"
    if choice.find_choices(row.problem) is not None:
        return "lettered options"
    if any(map(choice.is_letter, row.answers)) and _LETTER_ASKED.search(row.problem):
        return f"answer {row.answer}"
    return None


CHECKS = {
    "proof": proof,
    "no_answer": no_answer,
    "open_question": open_question,
    "yes_no": yes_no,
    "multi_part": multi_part,
    "multiple_choice": multiple_choice,
}
