"""Where variables are asked: on both sides of every bend, and with all their signs."""

import itertools
import string

import pytest

from rl.verifier.equal.points import INTEGER, REAL, coordinate, spread
from rl.verifier.parse.answers import parse_answer
from tests.rl.verifier.pairs import misjudged


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


@pytest.mark.parametrize("polynomial", ["x^2-15x+56", "(x-7)(x-8)", "a^2-5ab+6b^2"])
def test_absolute_values_are_those_of_the_other_side(polynomial):
    rows = [
        (polynomial, [], [f"|{polynomial}|", rf"\sqrt{{({polynomial})^2}}"]),
        (f"({polynomial})^2", [], [f"|{polynomial}| ({polynomial})"]),
        (f"2|{polynomial}|", [f"|2({polynomial})|"], []),
        ("|2x-8|", ["2|x-4|"], []),
    ]
    assert misjudged(rows) == []
