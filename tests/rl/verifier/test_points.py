"""Where variables are asked: on both sides of every bend, and with all their signs."""

import itertools
import string

import pytest

from rl.verifier.equal.points import INTEGER, REAL, coordinate, spread
from rl.verifier.parse.answers import parse_answer
from tests.rl.verifier.pairs import wrong


def _node(text):
    return parse_answer(text).node


def _values(text, name="x"):
    node = _node(text)
    return [coordinate(name, point) for point in (*REAL, *spread(node, node))]


@pytest.mark.parametrize("bend", ["0.003", "0.5", "5", "77", "4000", "10^6", "10^{17}"])
def test_each_constant_has_points_on_both_of_its_sides(bend):
    size = _node(bend).value
    for sign in (1, -1):
        values = [sign * value for value in _values(f"x + {bend}")]
        assert any(0 < value < size for value in values)
        assert any(value > size for value in values)


def test_each_gap_between_two_constants_has_a_point():
    values = _values("|x - 100| + |x - 200| + 17")
    for low, high in ((17, 100), (100, 200)):
        assert any(low < value < high for value in values)
        assert any(low < -value < high for value in values)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 12])
def test_names_take_all_their_signs(count):
    names = string.ascii_lowercase[5 : 5 + count].replace("i", "z")
    node = _node(" + ".join(names))
    points = list(spread(node, node))
    signs = {name: [coordinate(name, point) > 0 for point in points] for name in names}
    assert all(len(set(found)) == 2 for found in signs.values())
    for a, b in itertools.combinations(names, 2):
        assert len(set(zip(signs[a], signs[b], strict=True))) == 4


def test_points_are_as_many_as_gaps_and_not_as_digits():
    texts = [" + ".join(f"{k} x^{{{k + 1}}}" for k in range(1, 60)), "x + 10^{900}"]
    for text in texts:
        assert len(_values(text)) < 40
    many = _node(" + ".join(f"x_{{{k}}}" for k in range(180)))
    assert len(list(spread(many, many))) < 60


def test_a_value_is_the_same_whenever_it_is_asked():
    values = _values("|x - 5| + y")
    coordinate.cache_clear()
    assert _values("|x - 5| + y") == values
    assert coordinate("n", INTEGER[0]).denominator == 1


def test_what_is_equal_on_a_part_of_the_line_is_not_equal():
    rows = [
        ("|x-5|", "5-x"),
        ("|x-5|", "x-5"),
        ("5-x", "\\sqrt{(x-5)^2}"),
        ("x+4", "|x+4|"),
        ("y=|x-4|", "y=4-x"),
        ("y>|x-4|", "y>4-x"),
        ("|x-1000000|", "1000000-x"),
        ("|x-0.01|", "x-0.01"),
        ("|x-\\pi|", "\\pi-x"),
        ("|x-1|+|x-2|", "|2x-3|"),
        ("|x-100|+|x-200|", "|2x-300|"),
        ("x", "x+|2x-20|+|2x-28|-2|2x-24|"),  # bends at 10, 12 and 14
        ("x", "x+|x-20|+|x-24|-2|x-22|+|x-200|-|200-x|"),  # six constants
        ("\\lfloor x/10 \\rfloor", "\\lfloor x/20 \\rfloor"),
        ("(-1)^n |n-40|", "(-1)^n (40-n)"),
        ("1", "\\frac{|ab|}{ab}"),
        ("ab", "|ab|"),
        ("abc", "|abc|"),
        ("x_1 x_2 x_3 x_4 x_5", "|x_1 x_2| x_3 x_4 x_5"),
        ("mn", "\\sqrt{m^2 n^2}"),
        ("x^2", "x|x|"),
        ("(x+y)^2", "(|x|+|y|)^2"),
        ("|x|", "\\arccos(\\cos x)"),
        ("a", "\\arctan(\\tan a)"),
        ("\\cos a", "|\\cos a|"),
        ("\\cos a", "\\sqrt{1 - \\sin^2 a}"),
    ]
    assert wrong(rows, equal=False) == []


@pytest.mark.parametrize("polynomial", ["x^2-15x+56", "(x-7)(x-8)", "a^2-5ab+6b^2"])
def test_absolute_values_are_those_of_the_other_side(polynomial):
    rows = [
        (polynomial, f"|{polynomial}|"),
        (polynomial, f"\\sqrt{{({polynomial})^2}}"),
        (f"({polynomial})^2", f"|{polynomial}| ({polynomial})"),
    ]
    assert wrong(rows, equal=False) == []
    rows = [(f"2|{polynomial}|", f"|2({polynomial})|"), ("|2x-8|", "2|x-4|")]
    assert wrong(rows, equal=True) == []


def test_where_one_side_has_no_value_nothing_is_asked():
    rows = [
        ("2 \\ln x", "\\ln x^2"),
        ("\\ln(ab)", "\\ln a + \\ln b"),
        ("\\sqrt{ab}", "\\sqrt{a} \\sqrt{b}"),
        ("x \\sqrt{x}", "x^{3/2}"),
        ("x^{1/3}", "\\sqrt[3]{x}"),
        ("2x \\sqrt{2x}", "\\sqrt{8x^3}"),
        ("(ab)^x", "a^x b^x"),
        ("(a^x)^y", "a^{xy}"),
        ("\\log_a b", "\\frac{\\ln b}{\\ln a}"),
        ("\\sqrt{x-1} \\sqrt{x+1}", "\\sqrt{x^2-1}"),
        ("\\arcsin x", "\\frac{\\pi}{2} - \\arccos x"),
        ("\\ln(x-100)", "\\ln(2x-200) - \\ln 2"),
        ("\\ln(x-10^7)", "\\ln(2x - 2 \\cdot 10^7) - \\ln 2"),
        ("|x-5|", "|5-x|"),
        ("y=|x-4|", "2y=|2x-8|"),
        ("y=\\ln x", "2y=\\ln x^2"),
        ("y>2^x", "2y>2^{x+1}"),
        ("\\frac{n!}{(n-2)!}", "n(n-1)"),
        ("\\cos(n\\pi)", "(-1)^n"),
    ]
    assert wrong(rows, equal=True) == []
