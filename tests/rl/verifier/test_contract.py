"""What a reward needs after equality: finished, not copied, in the unit asked for."""

import functools

import pytest

from rl import verifier
from rl.verifier import Examiner, Verdict, verify
from tests.rl.verifier.hostile import FAMILIES, REPLIES
from tests.rl.verifier.measure import rows
from tests.rl.verifier.pairs import Row, labelled

# The rules of a problem, without that of literal golds (`test_literal`).
judge = functools.partial(verifier.judge, literal=False)

_EQUATION = "Solve the equation $2x + 3 = 13$."
_VALUE = r"What is the value of $2^3 + 3 \cdot 5 - \frac{7}{7}$?"
_SQUARES = "Let $f(x) = x^2 - 6x + 5$. Find the minimum of $(x-3)^2 - 4$."


_INTERSECTION = r"Given $A=\{x|0<x<3\}$ and $B=\{x|x>1\}$, find $A\cap B$."
# Rows of an answer, its gold, the problem and whether it is credited.
DECIDED: dict[str, list[tuple[str, str, str | None, bool]]] = {
    "a number of the problem in another spelling": [
        (r"\frac12", "0.5", r"Heads has probability $\frac12$. And tails?", True),
        (r"-\frac12", "-0.5", r"If $x=-\frac12$, what is $x^1$?", True),
        (r"\frac24", r"\frac12", r"He ate $\frac24$ of it. What is left?", True),
        (r"\frac12", "0.5", r"Express $\frac12$ as a decimal.", False),
        (r"\frac12", "0.5", r"What is the value of $\frac12$?", False),
        (r"\frac{12}{16}", r"\frac34", r"Simplify $\frac{12}{16}$.", False),
        ("1+2", "3", "There are $1+2$ apples.", False),
        ("12:16", r"\frac34", r"Simplify $\frac{12}{16}$.", False),
        (r"\frac{-12}{-16}", r"\frac34", r"Simplify $\frac{12}{16}$.", False),
        ("3:4", r"\frac34", "There are 3 boys and 4 girls.", True),
        (r"\frac{2}{\sqrt2}", r"\sqrt2", r"Its side is $\frac{2}{\sqrt2}$.", False),
    ],
    "joined formulas say no more": [
        (r"\{x : |x|<2\}", "(-2,2)", "Solve $|x|<2$.", False),
        (r"\{x \in \mathbb{R} \mid |x|<2\}", "(-2,2)", "Solve $|x|<2$.", False),
        (r"|x|<2 \text{ or } |x|<2", "(-2,2)", "Solve $|x|<2$.", False),
        (r"\{x : -2<x<2\}", "(-2,2)", "Solve $|x|<2$.", True),
        (r"n\in\{-1,0,1\}", "-1,0,1", "Which integers have $|n|<2$?", True),
        ("x>1, x<3", "(1,3)", "Solve the system $x>1$, $x<3$.", False),
        ("x>1, x<3", "(1,3)", "Solve the system $2x>2$, $3x<9$.", True),
        (r"0<x<3 \text{ and } x>1", r"\{x|1<x<3\}", _INTERSECTION, False),
        (r"\{x|0<x<3, x>1\}", r"\{x|1<x<3\}", _INTERSECTION, False),
        ("(1,3)", r"\{x|1<x<3\}", _INTERSECTION, True),
        (r"\{1,2\}\cap\{2,3\}", r"\{2\}", r"Intersect $\{1,2\}$ and $\{2,3\}$.", False),
        (r"x\ge0", r"[0,\infty)", r"Given $A=\{x|0\le x\le8\}$, find $A$'s.", True),
        ("x=1600", "1600", r"Solve $40\cdot40=x$.", True),
        (r"x=40\cdot40", "1600", r"Solve $40\cdot40=x$.", False),
        ("x=1, x=2", "1, 2", "Is $x=1$ or $x=2$ a root of $x^2-3x+2$?", True),
    ],
    "the question decides the reading": [
        (r"2500\%", "25", "What percent of 12 is 3?", False),
        (r"50\%", "0.5", "What percent of 1000 is 5?", False),
        (r"50\%", "0.5", "What share of the percent is it?", True),
        ("2:40", "1:20", "What is the ratio of boys to girls?", True),
        ("2:40", "1:20", "When does the train leave?", False),
        ("5m", "5", "How many meters of rope does she need?", True),
        (r"8\,m^3", "8", "What is the volume in cubic meters?", True),
        ("8m^3", "8", "What is the area in square meters?", False),
        (r"5\,m", "5", "How many meters of rope does she need?", True),
        ("5m", "5", "Find the slope of the line $y=5x$.", False),
        ("m+n=70", "70", "The probability is m/n; find m+n.", True),
        ("|z|=5", "5", "Find $|z|$.", True),
        ("|z|=5", "5", "Find $z$.", False),
    ],
    "a percent sign needs a question": [
        (r"120\%", "120", r"What is 20\% of 600?", False),
        ("120", "120", r"What is 20\% of 600?", True),
        (r"21\%", "21", "She takes 40 percent more cups. How many cups?", False),
        (r"25\%", "25", "What percent of 60 is 15?", True),
        (r"25\%", "25", r"If $x\%$ of 20 is 5, what is $x$?", True),
        (r"7\%", "7", "What is the interest rate, as a percentage, after 5% tax?",
         True),
        ("28", r"28\%", r"Discounts of 10\% and 20\% equal a discount of:", True),
    ],
    "digits are in the base that the problem names": [
        ("1253", "1253_6", "Express the base 10 number 321 in base 6.", True),
        ("1253", "1253_6", "Write 321 in base six.", True),
        ("1253", "1253_6", "Write 321 in base $6$.", True),
        ("1253", "1253_6", "Write 321 in another way.", False),
        ("1253", "1253_6", "Write 321 in base 60.", False),
        ("1253", "1253_6", "Write 321 in base sixteen.", False),
        ("1253", "1253_6", "Write 321 in bases 7 and 8.", False),
        ("1254", "1253_6", "Write 321 in base 6.", False),
        ("321", "1253_6", "Write 321 in base 6.", False),
        ("101101", "101101_2", "Convert 45 to binary.", True),
        ("55", "55_8", "Convert 45 to octal.", True),
        ("12.53", "1253_6", "Write 321 in base 6.", False),
    ],
    "what is asked for is a label": [
        ("x+y=17", "17", "Find $x+y$ if $x-y=3$.", True),
        ("|z|^2=2", "2", "What is the value of $|z|^2$?", True),
        ("x+y=17", "17", "Find $xy$ if $x+y=20$.", False),
        # Copied: 13 is what the problem says itself.
        ("2x+3=13", "13", "Find $2x+3=13$.", False),
        ("x+y=17", "17", None, False),
    ],
    "y and f may name one function": [
        ("f(x)=2x", "y=2x", "Find the equation of the line.", True),
        ("y=2x", "f(x)=2x", "Find $f(x)$.", True),
        ("y=2x", "f(x)=2x", "Let $y=f(x)+1$. Find $f(x)$.", False),
        ("y=3x", "f(x)=2x", "Find $f(x)$.", False),
        ("g(x)=2x", "f(x)=2x", "Find $f(x)$.", False),
        ("f(x)=2x", "y=2x", None, False),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_the_problem_decides(name):
    for answer, gold, problem, correct in DECIDED[name]:
        found = verifier.judge(rf"\boxed{{{answer}}}", gold, problem).correct
        assert found is correct, (answer, gold, problem)


def _rule(answer, gold, problem=None):
    verdict = judge(rf"Thus \boxed{{{answer}}}.", gold, problem)
    return verdict.correct, verdict.rule


@pytest.mark.parametrize(
    ("answer", "gold", "correct", "rule"),
    [
        (r"\frac{1}{2}", r"\frac{1}{2}", True, "text"),
        (r"\dfrac{1}{2}", r"\frac12", True, "number"),
        ("0.5", r"\frac{1}{2}", True, "number"),
        ("EAST", r"\text{east}", True, "text"),
        (r"\sin 2t", r"2 \sin t \cos t", True, "enclosure"),
        (r"\log_2 8", "3", True, "enclosure"),
        ("", "5", False, "no_answer"),
        ("((", "5", False, "unreadable"),
        ("4", "5", False, "different"),
        ("9^{9^{9^{9}}} - 9^{9^{9^{9}}} + 5", "5", False, "open"),
        ("5", r"\frac{1}{", None, "bad_gold"),
        ("5", "", None, "bad_gold"),
    ],
)
def test_the_rule_that_decided_is_named(answer, gold, correct, rule):
    assert _rule(answer, gold) == (correct, rule)


def test_a_verdict_says_it_in_words():
    assert judge(r"\boxed{2x+3=13}", "x=5", _EQUATION) == Verdict(
        False, "2x+3=13", "unfinished", "leaves a relation to be solved"
    )
    assert judge("so 5", "5") == Verdict(
        False, None, "no_answer", "has no closed box with an answer"
    )


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("2x + 3 = 13", "5"),
        ("2x + 3 = 13", "x = 5"),
        ("13 = 2x + 3", "x = 5"),
        ("2x > 10", "x > 5"),
        ("-x < -5", "x > 5"),
        ("x - 5 = 0", "x = 5"),
        ("x^2 - 4 = 0", r"\{-2, 2\}"),
        ("f(x) = 2f(x) - 5", "2f(x) - 5"),
        ("f(2) = f(1) + 1", "f(1) + 1"),
        ("f(x+1) = 2x + 1", "2x + 1"),
        ("f^{-1}(x) = 2f^{-1}(x) - x", "2f^{-1}(x) - x"),
    ],
)
def test_what_is_left_to_be_done_is_no_answer(answer, gold):
    correct, rule = _rule(answer, gold)
    assert correct is False and rule in ("unfinished", "different")


# Rows of a problem, its gold, answers that are credited, and copies of the problem.
_COPIES = [
    (_VALUE, "22", ["22", "8 + 15 - 1", "23 - 1"],
     [r"2^3 + 3 \cdot 5 - \frac{7}{7}", r"2^{3}+3\cdot 5-\dfrac77",
      r"3 \cdot 5 + 2^3 - \frac{7}{7}", r"2^3 + 5 \cdot 3 - \frac{7}{7}",
      r"2^3 + 3 \cdot 5 - \frac{7}{7} + 0",
      r"1 \cdot (2^3 + 3 \cdot 5 - \frac{7}{7})",
      r"\left( 2^3 + 3 \times 5 - \tfrac{7}{7} \right)",
      r"\color{red}{2^3 + 3 \cdot 5 - \frac{7}{7}}",
      r"\text{The answer is } 2^3 + 3 \cdot 5 - \frac{7}{7}",
      r"-(-2^3 - 3 \cdot 5 + \frac{7}{7})"]),
    # The problem may state its own answer, as in "show", or "which of these".
    (_SQUARES, "(x-3)^2-4", ["(x-3)^2 - 4", "-4 + (x-3)^2"], ["x^2 - 6x + 5"]),
    (r"Show that $a = \frac{10^6 - 1}{9}$ is odd and find $a$.", "111111", ["111111"],
     [r"\frac{10^6-1}{9}"]),
    ("What is 17 * 24 + 9?", "417", ["408 + 9"], [r"17 \cdot 24 + 9"]),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "gold", "credited", "copies"), _COPIES)
def test_an_expression_of_the_problem_is_no_answer(problem, gold, credited, copies):
    for answer in credited:
        assert _rule(answer, gold, problem)[0] is True, answer
    for answer in copies:
        assert _rule(answer, gold, problem) == (False, "echo"), answer
        # Without the problem nothing is known to be copied: it is equal.
        assert _rule(answer, gold)[0] is True, answer


def test_a_plain_value_of_the_problem_may_be_the_answer():
    problem = r"Of $7$, $x$, $-3$, $50\%$ and $45^\circ$, which one is it?"
    golds = {"7.0": "7", "x ": r"\mathrm{x}", "-3": "- 3.0"}
    for answer, gold in (golds | {r"50\%": r"50.0\%", r"45^\circ": "45"}).items():
        assert _rule(answer, gold, problem)[0] is True, answer


# Rows of a problem, answers that are credited for 90, and answers that are not.
_UNITS: list[Row] = [
    (
        "How many minutes does it take?",
        [r"90 \text{ minutes}", r"1.5 \text{ hours}", "90"],
        [r"90 \text{ hours}"],
    ),
    ("What is its length in centimeters?", [r"0.9 \text{ m}"], [r"90 \text{ m}"]),
    ("What is its speed in miles per hour?", [r"90 \text{ mph}"], [r"90 \text{ km/h}"]),
    ("What is its speed in km/h?", [r"90 \text{ km/h}"], [r"90 \text{ m/s}"]),
    (r"What is its speed in $\text{km}/\text{h}$?", [r"25 \text{ m/s}"], []),
    ("What is the rate in miles/hour?", [r"90 \text{ mph}"], []),
    ("Find its area in cm^2.", [r"90 \text{ cm}^2"], []),
    ("Find its area, in cm$^2$.", [r"90 \text{ square centimeters}"], []),
    ("Find its area in m^2.", [], [r"90 \text{ cm}^2"]),
    (r"Find its area in $\mathrm{m}^2$.", [], [r"90 \text{ cm}^2"]),
    ("Its acceleration in ft/s^2?", [r"90 \text{ ft/s}^2"], []),
    ("Its acceleration in meters per second squared?", [r"90 \text{ m/s}^2"], []),
    ("Its density in grams per cubic centimeter?", [r"90 \text{ g/cm}^3"], []),
    ("Its density in grams per cubic centimeter?", [], [r"90 \text{ kg/m}^3"]),
    ("It ran a number of minutes. How much, in L?", [r"90 \text{ L}"], []),
    ("It ran a number of minutes. How much, in L?", [], [r"90 \text{ mL}"]),
    (r"What is its length in $\text{m}$?", [], [r"90 \text{ cm}"]),
    ("In how many seconds?", [], [r"90 \text{ minutes}"]),
    ("How many more miles?", [], [r"90 \text{ km}"]),
    ("How many miles has she walked in total in a day?", [], [r"90 \text{ km}"]),
    ("How many dollars per hour?", [r"\$90", r"90 \text{ dollars per hour}"], []),
    ("How many dollars per hour?", [], [r"90 \text{ cents}"]),
    # "in" and "how many" before a word that is not a whole unit.
    ("She came in second place. How long was the throw?", [r"90 \text{ m}"], []),
    ("She came in second. How long was the throw?", [r"90 \text{ m}"], []),
    ("How many dollar bills, and how high?", [r"90 \text{ cm}"], []),
    ("How many hours a day, and how far?", [r"90 \text{ km}"], []),
    ("Give the rate in miles per lap.", [r"90 \text{ km}"], []),
    ("The integers in N, the line in m: how far?", [r"90 \text{ cm}"], []),
    # Nothing is asked for, or two things are: the unit is forgiven.
    ("How long is it?", [r"90 \text{ m}"], []),
    ("Its length in meters, or in feet?", [r"90 \text{ m}"], []),
]


@pytest.mark.parametrize(("problem", "answer", "correct"), labelled(_UNITS))
def test_a_gold_has_the_unit_that_is_asked_for(problem, answer, correct):
    assert (_rule(answer, "90", problem)[0] is True) == correct


def test_any_gold_counts_and_one_that_can_be_read_is_enough():
    assert judge(r"\boxed{4}", ("3", "4")).correct is True
    assert judge(r"\boxed{5}", ("3", "4")).rule == "different"
    assert judge(r"\boxed{4}", (r"\frac{1}{", "4")).correct is True
    assert judge(r"\boxed{5}", (r"\frac{1}{", "4")).correct is False
    assert judge(r"\boxed{5}", ()).correct is None
    # Words are no fault of a gold.
    assert judge(r"\boxed{5}", "the one on the left, of course").correct is False


def test_a_gold_that_cannot_be_read_may_still_be_written():
    assert judge(r"\boxed{#### 42}", "#### 42") == Verdict(
        True, "#### 42", "text", "has the same text as the gold"
    )


def test_a_fault_of_the_verifier_credits_nobody_and_says_what_it_was(monkeypatch):
    def fails(*_):
        raise KeyError("oops")

    monkeypatch.setattr("rl.verifier.grade.contract.same_answer", fails)
    verdict = judge(r"\boxed{4}", "5")
    assert (verdict.correct, verdict.rule) == (False, "open")
    assert "KeyError('oops')" in verdict.reason


def test_golds_and_problem_are_read_once_and_verdicts_do_not_depend_on_the_order():
    answers = ["22", r"2^3 + 3 \cdot 5 - \frac{7}{7}", "((", None, "21", "22.0"]
    examiner = Examiner(["22"], _VALUE)
    first = [examiner.judge(answer) for answer in answers]
    again = [examiner.judge(answer) for answer in reversed(answers)]
    alone = [Examiner(["22"], _VALUE).judge(answer) for answer in answers]
    assert first == again[::-1] == alone


@pytest.mark.failure(41)
def test_nothing_that_a_policy_writes_leads_to_no_verdict():
    """Else a policy could choose not to be judged wherever it would fail."""
    cases = [row for family in FAMILIES.values() for row in family]
    golds = ["1", "x = 5", r"\text{east}", "(0, 1]", r"\frac{\pi}{6}"]
    for index, (_, predicted, _) in enumerate(cases):
        verdict = judge(rf"\boxed{{{predicted}}}", golds[index % 5], _VALUE)
        assert verdict.correct is not None, predicted[:80]
    for _, reply, _ in REPLIES:
        assert judge(reply, "5", _VALUE).correct is not None, reply[:80]


def test_golds_of_the_evaluation_sets_are_readable(shared_data):
    """All but a handful that are prose around formulas."""
    unread = []
    for path in sorted((shared_data / "eval").glob("*.jsonl")):
        for row in rows(path):
            golds = row.get("answers") or [row["answer"]]
            verdict = judge(r"\boxed{-7.125}", golds, row["problem"])
            assert verdict.correct is not True, (path.name, golds)
            if verdict.correct is None:
                assert verdict.rule == "bad_gold"
                unread.append(row["id"])
    assert len(unread) <= 8, unread


@pytest.mark.parametrize(
    "dressed",
    [
        "x = F", r"\text{Area} = F", "f(x) = F", "F = F", r"F \approx 90.0", r"\{F\}",
        "|F|", r"\frac{F}{1}", r"2 \cdot F / 2",
    ],
)  # fmt: skip
def test_a_copy_is_one_behind_a_label_or_in_other_dress(dressed):
    formula = r"\frac{10!}{8!}"
    problem = f"What is ${formula}$?"
    answer = dressed.replace("F", formula)
    assert judge(rf"\boxed{{{answer}}}", "90", problem).rule == "echo"
    # What is worked out behind it is an answer.
    assert verify(rf"\boxed{{{formula} = 90}}", "90", problem)
    assert verify(r"\boxed{x = 90}", "90", problem)
