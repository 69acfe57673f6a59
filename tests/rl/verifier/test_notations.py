"""Right answers in other usual notations, and the neighbours that are other answers."""

from rl.verifier import judge
from tests.rl.verifier.pairs import wrong


def test_words_in_brackets_are_the_words_behind_a_value():
    rows = [
        ("5", "5 (minutes)"),
        ("5 \\text{ minutes}", "5 (\\text{minutes})"),
        ("5 \\text{ minutes}", "5 \\text{ (minutes)}"),
        ("5 \\text{ minutes}", "5 [\\text{minutes}]"),
        ("20 \\text{ sq units}", "20\\ (\\text{sq units})"),
        ("314", "314 (square meters)"),
        ("5000000", "5 (million)"),
        ("2\\sqrt3", "2\\sqrt3 (\\text{cm})"),
    ]
    assert wrong(rows, equal=True) == []
    rows = [
        ("5", "5 (halved)"),
        ("5", "5 \\text{ (wrong)}"),
        ("5 \\text{ minutes}", "5 (\\text{hours})"),
        ("5", "5 (million)"),
        ("5 \\text{ dollars}", "5 (million dollars)"),
        ("f(x)", "f(\\text{east})"),
    ]
    assert wrong(rows, equal=False) == []


def test_a_unit_that_names_nothing_is_no_fault_of_the_verifier():
    for answer in ("12 (units)", "12 (square units)", "12 (exactly)"):
        assert judge(f"\\boxed{{{answer}}}", "12", "What is the area?").correct


def test_spelling_of_numbers_and_signs():
    rows = [
        ("12345", "12\\;345"),
        ("1234567", "1\\:234\\:567"),
        ("0.5", "0{.}5"),
        ("-7", "{-}7"),
        ("27\\%", "27{\\%}"),
        ("25", "\\Rightarrow25"),
        ("x=25", "\\Longrightarrow x = 25"),
        ("x \\ne 2", "x\\not=2"),
        ("x \\notin [0,1]", "x \\not\\in [0,1]"),
        ("45^\\circ", "45^o"),
        ("45^\\circ", "45^{\\text{o}}"),
        ("68\\%", "68 \\text{ per cent}"),
    ]
    assert wrong(rows, equal=True) == []
    rows = [
        ("12345", "12\\;34\\;5"),
        ("12, 345", "12\\;345"),
        ("x = 2", "x\\not=2"),
        ("x \\ne 3", "x\\not=2"),
        ("x \\in [0,1]", "x \\not\\in [0,1]"),
        ("x", "x^o"),
        ("5", "0{.}5"),
    ]
    assert wrong(rows, equal=False) == []


def test_noon_and_midnight_name_the_half_of_the_day():
    rows = [
        ("12:00 \\text{ PM}", "12:00 \\text{ noon}"),
        ("\\text{noon}", "12 \\text{ noon}"),
        ("\\text{midnight}", "\\text{12 midnight}"),
    ]
    assert wrong(rows, equal=True) == []
    rows = [
        ("12:00 \\text{ AM}", "12:00 \\text{ noon}"),
        ("5:00 \\text{ PM}", "5:00 \\text{ noon}"),
        ("12:30 \\text{ PM}", "12:30 \\text{ noon}"),
    ]
    assert wrong(rows, equal=False) == []


def test_a_scale_of_temperature_is_a_unit():
    spellings = [
        "25^\\circ C",
        "25^\\circ\\text{C}",
        "25^{\\circ}\\mathrm C",
        "25°C",
        "25 \\text{ degrees Celsius}",
        "25",
        "25^\\circ",
    ]
    rows = [("25^{\\circ}\\mathrm{C}", text) for text in spellings]
    assert wrong(rows, equal=True) == []
    rows = [(text, "25^\\circ F") for text in spellings[:5]]
    assert wrong([*rows, ("25^\\circ C", "-25^\\circ C")], equal=False) == []
    problem = "What is the temperature in degrees Celsius?"
    assert judge("\\boxed{25^\\circ C}", "25", problem).correct
    assert not judge("\\boxed{25 \\text{ K}}", "25", problem).correct
