"""Tables, charts and documents of pages: placement, ticks, escaping, policy."""

import re

import pytest

from tools.page import (
    Series,
    bars,
    details,
    document,
    dots,
    filtered,
    lines,
    note,
    section,
    shown,
    table,
    text,
    ticks,
)

NASTY = "</script><b onclick=x>&\"'"


def test_a_page_allows_no_script():
    made = document("<t>", section("<s>", note("a `<b>`")) + section("empty"))
    assert "default-src 'none'; script-src 'none';" in made and "<script" not in made
    assert "<title>&lt;t&gt;</title>" in made and "<h2>&lt;s&gt;</h2>" in made
    assert "<code>&lt;b&gt;</code>" in made and "<h2>empty" not in made


def test_plain_texts_are_escaped_everywhere():
    made = [
        table(("name", NASTY), [(NASTY, 3)]),
        bars(NASTY, [(NASTY, 2.0)], unit=NASTY),
        dots(NASTY, [(NASTY, 0.5, (0.25, 0.75), 0)]),
        lines(NASTY, [Series(label=NASTY, points=[(1, 2.0)])]),
        details(NASTY, "", NASTY),
        note(NASTY),
        text(NASTY, 100),
        filtered(["a"], [(NASTY, "")]),
    ]
    for html in made:
        assert "<b" not in html and "</script" not in html and "&lt;/script" in html


def points(svg):
    found = re.findall(r'<polyline points="(.*?)"', svg)
    return [[tuple(map(float, p.split(","))) for p in line.split()] for line in found]


def test_a_line_lies_where_its_points_are():
    line = [(0, 0.0), (5, 1.0), (10, 4.0)]
    svg = lines("t", [Series(label="a", points=line)])
    # x from 54 to 510, y from 196 up to 8.
    assert points(svg) == [[(54.0, 196.0), (282.0, 149.0), (510.0, 8.0)]]
    assert "<title>a, step 5: 1</title>" in svg
    still = points(lines("t", [Series(label="a", points=[(1, 3.0), (2, 3.0)])]))[0]
    assert still == [(54.0, 102.0), (510.0, 102.0)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0], [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ([0.37, 0.91], [0.2, 0.4, 0.6, 0.8, 1.0]),
        ([0.0123, 0.0187], [0.012, 0.014, 0.016, 0.018, 0.02]),
        ([21_000, 83_000], [20_000, 40_000, 60_000, 80_000, 100_000]),
        ([1, 200], [0, 50, 100, 150, 200]),
        ([1, 3], [1, 1.5, 2, 2.5, 3]),
        ([0.1, (0.1 + 0.1 + 0.1) / 3], [0.09, 0.095, 0.1, 0.105, 0.11]),
    ],
)
def test_ticks_are_round_and_enclose_the_values(values, expected):
    assert ticks(values) == expected


def test_a_long_line_is_thinned_and_keeps_its_end():
    line = [(x, float(x)) for x in range(10_001)]
    (found,) = points(lines("t", [Series(label="a", points=line)]))
    assert len(found) == 198 and found[-1] == (510.0, 8.0)


def test_rows_are_filtered_by_kinds_that_exist():
    made = filtered(["best", "worst"], [("best right", "<p>1</p>"), ("right", "2")])
    assert 'value="best"' in made and "worst" not in made
    assert 'class="row k-best k-right"><p>1</p>' in made


def test_a_long_text_loses_its_middle():
    assert "aaa\n[... 1,000 characters in all ...]\naaa" in text("a" * 1000, 6)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1234567, "1,234,567"), (0.123456, "0.1235"), (2.0, "2"), (True, "True"),
     (12345.678, "12,346"), (float("nan"), "nan"), (float("inf"), "inf"), ("a", "a")],
)  # fmt: skip
def test_numbers_are_formatted_for_reading(value, expected):
    assert shown(value) == expected
