"""Units: converted within a dimension, forgiven where missing, never confused."""

from fractions import Fraction

import pytest

from rl.verifier import judge
from rl.verifier.parse.units import parse_unit


def test_a_unit_may_have_an_exponent():
    problem = r"Find the speed in $\mathrm{km}\,\mathrm{h}^{-1}$."
    assert judge(r"\boxed{90 \text{ km/h}}", "90", problem).correct
    assert not judge(r"\boxed{90 \text{ h/km}}", "90", problem).correct


def test_ways_and_units_are_counted():
    problem = "In how many ways can three of them be chosen?"
    assert judge(r"\boxed{144 \text{ ways}}", "144", problem).correct
    assert judge(r"\boxed{\pi \text{ units}}", r"\pi", "How many units?").correct
    said = r"\boxed{\text{Thus, the answer is }5}"
    assert judge(said, "5", problem).correct


@pytest.mark.parametrize(
    ("question", "right", "other"),
    [
        ("She has 12 pairs of socks. How many socks are these?",
         ["socks", "socks in total"],
         ["pairs of socks", "pairs", "pairs of shoes", "hours"]),
        ("How many pairs of socks can 24 socks make?", ["pairs", "pairs of socks"],
         ["socks", "socks in pairs", "teams"]),
        ("A team has 9 students. How many of the students are in each team?",
         ["students", "people"], ["teams", "teams of students", "students per school"]),
        ("How many total meters does he run a week?", ["meters", "m"],
         ["meters per day", "km per week", "weeks", "m/s", "sprints"]),
        (r"Is it a profit? He pays \$5. How much does he make per day?",
         ["dollars", "dollars per day"],
         ["dollars loss", "dollars in debt", "doubled dollars"]),
        ("How many dollars of profit does he make? Each child has three parts.",
         ["dollars", "dollars of profit"], ["dollars loss", "cents", "parts"]),
        ("Three children share the apples. How many does each get?",
         ["apples", "apples each"], ["apples per hour", "apples per basket"]),
    ],
)  # fmt: skip
def test_words_that_are_told_but_not_asked_for(question, right, other):
    def correct(words: str) -> bool:
        return judge(rf"\boxed{{12 \text{{ {words}}}}}", "12", question).correct

    assert [words for words in right if not correct(words)] == []
    assert [words for words in other if correct(words)] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Rosa has 14 baskets.", "Rosa has 15 apples.", "Rosa has not 14 apples.",
        "No one has 14 apples.", "Rosa has 14 or 15 apples.", "14 apples or more",
        "Rosa has 14 dozen apples.", "Half of the answer is 14 apples.",
        "If it is 14 apples", "The answer is at least 14.", "14 minus 1 apples",
        "The answer to problem 14 is 15.",
    ],
)  # fmt: skip
def test_a_sentence_with_a_number_is_not_that_number(sentence):
    problem = "Rosa has baskets of red one-pound apples. How many apples has she?"
    box = rf"\boxed{{\text{{{sentence}}}}}"
    assert judge(box, "14", problem).correct is False


def test_what_a_price_is_for():
    problem = r"A shirt costs \$7 and a hat \$3. How much do they cost in total?"
    right = [rf"\$10 \text{{ {words}}}" for words in ("in total", "each", "dollars")]
    right += [r"10 \text{ US dollars}"]
    wrong = [rf"\$10 \text{{ {words}}}" for words in ("cents", "loss", "short")]
    for answer in right + wrong:
        for gold in ("10", r"\$10"):
            found = judge(rf"\boxed{{{answer}}}", gold, problem).correct
            assert found is (answer in right)


@pytest.mark.parametrize(
    ("words", "unit", "scale"),
    [
        ("cm", "length^1", Fraction(1, 100)),
        ("km per hour", "length^1 time^-1", Fraction(5, 18)),
        ("square feet", "length^2", Fraction("0.3048") ** 2),
        ("m / s ^ 2", "length^1 time^-2", Fraction(1)),
        ("feet per second squared", "length^1 time^-2", Fraction("0.3048")),
        ("N", "length^1 mass^1 time^-2", Fraction(1000)),
        ("dogs", frozenset({"dogs"}), Fraction(1)),
        ("red apples", frozenset({"red-", "apples"}), Fraction(1)),
        ("kg of rice", "mass^1 of rice", Fraction(1000)),
        ("kilowatt-hours", "length^2 mass^1 time^-2", Fraction(3600 * 10**6)),
        ("in total", None, Fraction(1)),
    ],
)
def test_readings(words, unit, scale):
    assert parse_unit(words)[:2] == (unit, scale)


@pytest.mark.parametrize(
    "words",
    "or more|minus|not|tenths|at most|sevenths|fifteenths|twentieths|billionths|nines"
    "|doubled|halved|inverse|reciprocal|ish|tenfold|people x|two|squared apples"
    "|divided by two|increased by one|to the power of itself|off by one|choose two"
    "|in base six|modulo three|apples divided by two|ways to the power two"
    "|th power".split("|"),
)
def test_words_that_change_the_number_are_no_unit(words):
    assert parse_unit(words) is None


def test_multipliers():
    assert parse_unit("million dollars").multiplier == 10**6
    assert parse_unit("dozen eggs").multiplier == 12
    assert parse_unit("lakh rupees").multiplier == 10**5
    assert parse_unit("quadrillion").multiplier == 10**15
    assert parse_unit("hundreds").multiplier == 100


_PROBLEM = """Half of the apples that Tom and his fish had in base six were inverted,
    halved, doubled, divided by two and sold in red baskets: one, two, three apples.
    How many more green apples, t-shirts and cups of sugar were painted?"""


@pytest.mark.parametrize("problem", [None, _PROBLEM])
@pytest.mark.parametrize(
    "words",
    "sevenths ninths elevenths twelfths fifteenths twentieths millionths billionths"
    " quadrillion quintillion lakh crore gross score googol doubled tripled halved"
    " inverse inverted reversed reciprocal negated ish nines hundreds tens dozens"
    " negative two umpteen".split()
    + ["divided by two", "increased by one", "multiplied by itself", "in base six"]
    + ["raised to itself", "to the power of itself", "off by one", "choose two"]
    + ["modulo three", "apples divided by two", "people x", "apples squared"]
    + ["squareds", "n-th", "apples in binary", "in reverse", "digits repeated"],
)
def test_a_word_that_may_be_an_operation_is_no_unit(words, problem):
    box = rf"\boxed{{12 \text{{ {words}}}}}"
    assert judge(box, "12", problem).correct is not True


@pytest.mark.parametrize("problem", [None, "How many {} are there?"])
@pytest.mark.parametrize(
    "words",
    [
        "ways", "different ways", "apples", "students", "miles per hour",
        "cups of sugar", "two-digit numbers", "positive integers", "square units",
        "units", "people", "distinct arrangements", "non-negative integers",
        "possible values", "values", "unique solutions", "total", "in total",
        "red apples",
        "years old", "kg of rice", "hours in total", "feet tall",
        "dollars each", "ordered pairs", "real roots", "apples left", "t-shirts",
        "kilowatt-hours", "non-zero digits", "gm",
    ],
)  # fmt: skip
def test_words_that_only_name_what_is_counted(words, problem):
    box, asked = rf"\boxed{{12 \text{{ {words}}}}}", problem and problem.format(words)
    assert judge(box, "12", asked).correct is True


def test_with_a_problem_its_words_name_what_is_counted():
    def correct(words: str, problem: str | None, gold: str = "12") -> bool:
        box = rf"\boxed{{12 \text{{ {words}}}}}"
        return judge(box, gold, problem).correct is True

    for words in ("t-shirts", "more apples", "apples more", "apples sold"):
        assert correct(words, _PROBLEM)
    # given, but not asked for
    for words in ("fish", "baskets", "red baskets of apples", "apples per basket"):
        assert not correct(words, _PROBLEM)
    for words in ("mackerel", "apples more", "glyphs drawn", "painted"):
        assert not correct(words, None)
    assert not correct("painted", _PROBLEM)
    # never mentioned
    assert correct("oranges", None)
    assert not correct("oranges", _PROBLEM)
    assert correct("oranges", _PROBLEM, gold=r"12 \text{ oranges}")
