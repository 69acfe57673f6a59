"""What every page has: a policy, data that no text can leave, charts of figures."""

import base64
import hashlib
import json
import re

import pytest

from tools.page import Series, bars, document, dots, embedded, lines, shown, table

NASTY = "</script><b onclick=x>&\"'"


def test_the_policy_allows_the_pages_own_script_and_nothing_else():
    text = document("<t>", "<p>body</p>", script="$('x');", data={"a": NASTY})
    code = re.search(r"<script>(.*?)</script>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in text
    assert "<title>&lt;t&gt;</title>" in text and code.endswith("$('x');")
    plain = document("t", "<p>body</p>")
    assert "script-src 'none'" in plain and "<script" not in plain


def test_data_comes_back_and_ends_no_block():
    value = {
        "text": NASTY,
        "list": (1, 2.5),
        "nan": float("nan"),
        "deep": [{"a": None}],
    }
    text = embedded(value)
    assert "<" not in text
    assert json.loads(text) == {
        "text": NASTY, "list": [1, 2.5], "nan": None, "deep": [{"a": None}],
    }  # fmt: skip


def test_charts_and_tables_hold_texts_as_texts():
    made = [
        table(("name", NASTY), [(NASTY, 3)]),
        bars(NASTY, [(NASTY, 2.0)], unit=NASTY),
        dots(NASTY, [(NASTY, 0.5, (0.25, 0.75), 0)]),
        lines(NASTY, [Series(label=NASTY, points=[(1, 2.0)])]),
    ]
    for text in made:
        assert "<b" not in text and "</script" not in text and "&lt;/script" in text


def points(svg):
    found = re.findall(r'<polyline points="(.*?)"', svg)
    return [[tuple(map(float, p.split(","))) for p in line.split()] for line in found]


def test_a_line_lies_where_its_points_are():
    line = [(0, 0.0), (5, 1.0), (10, 4.0)]
    (found,) = points(lines("t", [Series(label="a", points=line)]))
    # x from 54 to 510, y from 196 up to 8.
    assert found == [(54.0, 196.0), (282.0, 149.0), (510.0, 8.0)]
    still = points(lines("t", [Series(label="a", points=[(1, 3.0), (2, 3.0)])]))[0]
    assert still == [(54.0, 102.0), (510.0, 102.0)]
    # A mean of three tenths is not a tenth, and no hill either.
    rounded = [(1, 0.1), (2, (0.1 + 0.1 + 0.1) / 3)]
    still = points(lines("t", [Series(label="a", points=rounded)]))[0]
    assert [round(y) for _, y in still] == [102, 102]


def test_a_long_line_is_thinned_and_keeps_its_end():
    line = [(x, float(x)) for x in range(10_001)]
    (found,) = points(lines("t", [Series(label="a", points=line)], most=100))
    assert len(found) == 101 and found[-1] == (510.0, 8.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567, "1,234,567"), (0.123456, "0.1235"), (2.0, "2"), (True, "True"),
     (12345.678, "12,346"), (float("nan"), "nan"), (float("inf"), "inf"), ("a", "a")],
)  # fmt: skip
def test_values_are_shown_as_a_person_writes_them(value, text):
    assert shown(value) == text
