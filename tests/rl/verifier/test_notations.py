"""Right answers in other usual notations, and the neighbours that are other answers."""

from rl.verifier import is_equivalent, judge
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
        ("68\\%", "68 \\text{ per cent}"),
    ]
    assert wrong(rows, equal=True) == []
    rows = [
        ("12345", "12\\;34\\;5"),
        ("12, 345", "12\\;345"),
        ("x = 2", "x\\not=2"),
        ("x \\ne 3", "x\\not=2"),
        ("x \\in [0,1]", "x \\not\\in [0,1]"),
        ("5", "0{.}5"),
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


def test_letters_of_options_are_a_set():
    spellings = [
        "BCD",
        "B, C, D",
        "D, B, C",
        "(B),(C),(D)",
        "(B)(C)(D)",
        "\\text{B, C and D}",
        "B \\text{ and } C \\text{ and } D",
        "\\{B, C, D\\}",
        "\\text{(B)}, \\text{(C)}, \\text{(D)}",
        "\\text{Options } B, C, D",
    ]
    rows = [(gold, text) for gold in spellings for text in spellings[:4]]
    assert wrong(rows, equal=True) == []
    others = ["B, C", "B, C, D, E", "B, C, E", "B", "BDC"]
    rows = [(gold, text) for gold in spellings for text in others]
    assert wrong([*rows, ("(A, B)", "A, B")], equal=False) == []


def test_an_option_that_says_another_letter_is_neither():
    for answer in ("(D) C", "D. C", r"\textbf{(D)}\ C"):
        assert not is_equivalent(answer, "C") and not is_equivalent(answer, "D")
        assert is_equivalent(answer, "(D) C")
    for value in ("x", "12", "Q", "I"):
        assert is_equivalent(f"(D) {value}", "D"), value
        assert is_equivalent(f"(D) {value}", value), value


def test_and_is_not_or_but_in_a_list_of_values():
    assert not is_equivalent("x=0 \\text{ or } y=0", "x=0 \\text{ and } y=0")
    assert not is_equivalent("a>0 \\text{ and } b>0", "a>0 \\text{ or } b>0")
    assert not is_equivalent("x=0 \\text{ or } y=0, and", "x=0 \\text{ and } y=0")
    assert not is_equivalent("x<5 \\text{ or } x>1, and", "(1,5)")
    assert not is_equivalent(r"\text{Alice or Bob}", r"\text{Alice and Bob}")
    assert is_equivalent(r"\text{Bob and Alice}", r"\text{Alice and Bob}")
    assert is_equivalent("x=0 \\text{ or } x=1", "x=0 \\text{ and } x=1")
    assert is_equivalent("1 \\text{ and } 2", "1 \\text{ or } 2")
    assert is_equivalent("x=1, y=2", "x=1 \\text{ and } y=2")
    assert is_equivalent("x=2 \\text{ and } 3x-4y=9", "x=2 \\text{ or } 3x-4y=9")


def test_a_union_by_a_letter_and_a_unit_behind_pi():
    assert is_equivalent(r"(-\infty,1) U (2,\infty)", r"(-\infty,1)\cup(2,\infty)")
    assert not is_equivalent(r"(-\infty,1) U (3,\infty)", r"(-\infty,1)\cup(2,\infty)")
    assert is_equivalent(r"12\pi\text{ in}^3", r"12\pi")
    assert not is_equivalent(r"12\pi\text{ in}^3", r"12\pi\text{ in}^2")


def test_a_word_has_its_letters_in_order():
    assert wrong([("\\text{AB}", "AB"), ("\\text{bcd}", "bcd")], equal=True) == []
    rows = [
        ("\\text{odd}", "d^2o"),
        ("\\text{odd}", "ddo"),
        ("\\text{even}", "e^2vn"),
        ("\\text{ACB}", "ABC"),
        ("NNYY", "NYNY"),
    ]
    assert wrong(rows, equal=False) == []


def test_words_may_introduce_a_value():
    rows = [
        ("(1, 2)", "\\text{The point } (1, 2)"),
        ("[0, 1]", "\\text{the interval } [0, 1]"),
    ]
    assert wrong(rows, equal=True) == []
    rows = [
        ("25", "\\text{Answer minus 1: 25}"),
        ("B", "\\text{The answer is not (B)}"),
        ("x \\le -3", "x \\text{ is less than } -3"),
        ("[0, 1]", "\\text{the complement of } [0, 1]"),
        ("(3, 4)", "\\text{twice } (3, 4)"),
        ("0.5", "\\text{point } 5"),
    ]
    assert wrong(rows, equal=False) == []


def test_what_introduces_words_is_no_part_of_them():
    rows = [
        ("\\text{parabola}", "\\text{a parabola}"),
        ("\\text{ellipse}", "\\text{It is an ellipse}"),
        ("\\text{Yes}", "\\text{The answer is Yes}"),
        ("\\text{no solution}", "\\text{There are no solutions}"),
        ("\\text{isosceles triangle}", "\\text{an isosceles triangle}"),
    ]
    assert wrong(rows, equal=True) == []
    rows = [
        ("\\text{unique}", "\\text{It is not unique}"),
        ("\\text{b}", "\\text{a b}"),
        ("\\text{right}", "\\text{The answer is not right}"),
        ("\\text{parabola}", "\\text{a parabola or an ellipse}"),
        ("\\text{parabola}", "\\text{parabola the}"),
    ]
    assert wrong(rows, equal=False) == []


def test_a_reason_is_no_part_of_an_answer():
    rows = [("2\\sqrt3", "2\\sqrt3 \\text{ (exact)}")]
    assert wrong(rows, equal=True) == []
    rows = [
        ("12", "12 \\text{ (otherwise } 7)"),
        ("12", "12 \\text{ (since the rest is zero)}"),
        ("12", "12 \\text{ with the sign changed}"),
        ("12", "12 \\text{ if doubled}"),
        ("\\frac13", "\\frac13 \\text{ (approximately } 0.35)"),
    ]
    assert wrong(rows, equal=False) == []


def test_one_vector_has_many_notations():
    column = "\\begin{pmatrix} 3 \\\\ 4 \\end{pmatrix}"
    spellings = ["(3, 4)", "\\langle 3, 4 \\rangle", "[3, 4]", "P(3, 4)"]
    assert wrong([(column, text) for text in spellings[:3]], equal=True) == []
    rows = [(text, "(3, 4)") for text in spellings if text != "[3, 4]"]
    assert wrong(rows, equal=True) == []
    rows = [
        (column, "(4, 3)"),
        (column, "[3, 4)"),
        (column, "(3, 4, 0)"),
        (column, "3, 4"),
        (column, "\\begin{pmatrix} 3 & 4 \\end{pmatrix}"),
        ("(3, 4)", "[3, 4]"),
    ]
    assert wrong(rows, equal=False) == []


def test_what_a_ratio_is_of_is_a_label():
    rows = [
        ("3:4", "a:b = 3:4"),
        ("3:4", "AB : CD = 3:4"),
        ("3:4:5", "a:b:c = 3:4:5"),
        ("m = 2", "m: 2"),
    ]
    assert wrong(rows, equal=True) == []
    rows = [("3:4", "a:b = 4:3"), ("a:b = 3:4", "b:a = 3:4"), ("m = 2", "n: 2")]
    assert wrong(rows, equal=False) == []


def test_intervals_whose_brackets_turn_outwards():
    rows = [
        ("[0, 1)", "[0, 1["),
        ("(0, 1]", "]0; 1]"),
        ("[0, \\infty)", "[0, \\infty["),
        ("[0, 1) \\cup (2, 3)", "[0, 1[ \\cup ]2, 3["),
    ]
    assert wrong(rows, equal=True) == []
    rows = [("[0, 1]", "[0, 1["), ("(0, 1)", "[0, 1["), ("[0, 1)", "[0, 2[")]
    assert wrong(rows, equal=False) == []


def test_digits_in_brackets_behind_places_repeat():
    rows = [("-\\frac{1}{12}", "-0.08(3)"), ("\\frac{17}{36}", "0.47\\left(2\\right)")]
    assert wrong(rows, equal=True) == []
    rows = [("0.6", "0.1(6)"), ("\\frac16", "0.1(7)"), ("6", "2.(3)")]
    assert wrong([*rows, ("23", "2(3)")], equal=False) == []


def test_the_problem_tells_whether_a_percent_sign_may_be_left_out():
    share, percent = "What is the probability?", "What percent is it?"
    assert judge("\\boxed{42}", "42\\%", percent).correct
    assert judge("\\boxed{42\\%}", "42", percent).correct
    assert judge("\\boxed{0.42}", "42\\%", share).correct
    assert judge("\\boxed{42\\%}", "0.42", share).correct
    assert not judge("\\boxed{42}", "42\\%", share).correct
    assert not judge("\\boxed{42\\%}", "42", "How many are there?").correct
    assert wrong([("-25\\%", "-25"), ("-5^\\circ", "-5")], equal=True) == []


def test_a_derivative_is_not_its_function():
    rows = [("y = 2x", "\\frac{dy}{dx} = 2x"), ("y = 2x", "f'(x) = 2x")]
    assert wrong(rows, equal=False) == []


def test_a_sign_before_several_coordinates_is_that_of_all():
    both = "(1,2), (-1,-2)"
    vectors = (
        "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
        "\\begin{pmatrix}-1\\\\-2\\end{pmatrix}",
    )
    rows = []
    assert wrong(rows, equal=True) == []
    rows = [
        ("(1,2)", "\\pm(1,2)"),
        (f"{both}, (1,-2), (-1,2)", "\\pm(1,2)"),
        ("(1,2)", "-(1,2)"),
        ("(-1,2)", "-(1,2)"),
        (
            f"{vectors[0]}, \\begin{{pmatrix}}1\\\\-2\\end{{pmatrix}}",
            f"\\pm{vectors[0]}",
        ),
    ]
    assert wrong(rows, equal=False) == []


def test_braces_around_one_name_or_function():
    same = [
        ("a_n", "{a}_{n}"),
        ("a_{n+1}", "{{a}_{n+1}}"),
        ("\\frac{x_1}{x_2}", "\\frac{{x}_{1}}{{x}_{2}}"),
        ("R_1^2", "{R}_{1}^{2}"),
        ("\\log_2 3", "{\\log}_{2}3"),
        ("\\cos^2\\theta", "{\\cos }^{2}\\theta"),
        ("f'(x)=2x", "{f}^{\\prime}(x)=2x"),
        ("f^{-1}(x)=x", "{f}^{-1}(x)=x"),
        ("C_n^k", "{{C}_{n}^{k}}"),
        ("F_1F_2", "{{F}_{1}}{{F}_{2}}"),
    ]
    assert wrong(same, equal=True) == []
    assert wrong([("a_n", "{a}_{m}"), ("2^{x}", "{x}^{2}")], equal=False) == []


def test_units_and_currencies_in_any_dress():
    for answer in ("5\\mathrm{\\,cm}", "5 {\\rm ~cm}", "5[cm]", "5\\text{\\ cm}"):
        assert wrong([("5 \\text{ cm}", answer)], equal=True) == []
        assert wrong([("5 \\text{ kg}", answer)], equal=False) == []
    rows = [("\\text{Rs. }500"), ("US\\$500"), ("\\pounds500")]
    assert wrong([("500", row) for row in rows], equal=True) == []
    assert (
        wrong([("5 \\text{ cents}", "5¢"), ("12", "\\text{a dozen}")], equal=True) == []
    )


def test_values_that_are_left_out():
    same = [
        ("(-\\infty,2)\\cup(2,5)\\cup(5,\\infty)", "x \\neq 2, 5"),
        ("(-\\infty,-1)\\cup(-1,1)\\cup(1,\\infty)", "x\\neq\\pm1"),
        ("x\\neq -2, 3", "x\\in\\mathbb{R}\\setminus\\{-2,3\\}"),
    ]
    assert wrong(same, equal=True) == []
    other = [("x\\neq 2, 5", "x\\neq 2"), ("x\\neq 2, 5", "2, 5"), ("5", "x \\ne 2, 5")]
    assert wrong(other, equal=False) == []
