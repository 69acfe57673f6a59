"""Charts and pages: placement, ticks, escaping, policy, Markdown."""

import re

import pytest

from tools import page as pages
from tools.page import Lines, Section, Series, page

NASTY = "</script><b onclick=x>&\"'"


def test_a_page_allows_no_script_and_escapes_all_texts():
    made = page(
        NASTY,
        [
            Section(NASTY, [{"name": NASTY, NASTY: 3}], f"{NASTY} `<b>`"),
            Section("", charts=[pages.Dots(NASTY, [(NASTY, 0.5, (0.25, 0.75), 0)])]),
            Section("", charts=[Lines(NASTY, [Series(NASTY, [(1, 2.0)])])]),
            Section("", entries=[pages.Entry(NASTY, [NASTY], [NASTY], anchor=NASTY)]),
            Section("empty"),
        ],
    )
    assert "default-src 'none'; script-src 'none';" in made
    assert "<b" not in made.replace("<body", "") and "script>" not in made
    assert made.count("&lt;/script&gt;") == 15 and "<code>&lt;b&gt;</code>" in made
    assert "<h2>empty" not in made


def test_a_line_lies_where_its_points_are():
    (line,) = pages.place(Lines("t", [Series("a", [(0, 0.0), (5, 1.0), (10, 4.0)])]))[
        "lines"
    ]
    # x from 54 to 510, y from 196 up to 8.
    assert [(x, y) for x, y, _ in line[1]] == [(54, 196), (282, 149), (510, 8)]
    made = page("t", [Section("", charts=[Lines("t", [Series("a", [(5, 1.0)])])])])
    assert "<title>a, step 5: 1</title>" in made
    (line,) = pages.place(Lines("t", [Series("a", [(1, 3.0), (2, 3.0)])]))["lines"]
    assert [(x, y) for x, y, _ in line[1]] == [(54, 102), (510, 102)]


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
    assert pages.ticks(values) == expected


def test_a_long_line_is_thinned_and_keeps_its_end():
    line = [(x, float(x)) for x in range(10_001)]
    ((_, found, _),) = pages.place(Lines("t", [Series("a", line)]))["lines"]
    assert len(found) == 198 and found[-1] == (510.0, 8.0, "step 10,000: 10,000")


def test_rows_are_filtered_by_kinds_that_exist():
    entries = [
        pages.Entry("1", kinds=["best", "right"]),
        pages.Entry("2", kinds=["right"]),
    ]
    made = page("t", [Section("", entries=entries)])
    assert re.findall(r'value="(\w+)">', made) == ["best", "right"]
    assert 'class="row k-best k-right"' in made and 'class="row k-right"' in made


def test_a_long_text_loses_its_middle():
    assert "aaa\n[... 1,000 characters in all ...]\naaa" in pages.cut("a" * 1000, 6)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1234567, "1,234,567"), (0.123456, "0.1235"), (2.0, "2"), (True, "True"),
     (12345.678, "12,346"), (float("nan"), "nan"), (float("inf"), "inf"), ("a", "a")],
)  # fmt: skip
def test_numbers_are_formatted_for_reading(value, expected):
    assert pages.shown(value) == expected


def test_markdown_has_titles_notes_and_rows():
    report = [Section("A", [{"name": "b|c", "n": 1234}], "note"), Section("empty")]
    assert pages.markdown("T", report, "remark").splitlines() == [
        "# T", "", "## A", "", "note", "", "| name | n |", "| --- | ---: |",
        "| b\\|c | 1,234 |", "", "- remark",
    ]  # fmt: skip
