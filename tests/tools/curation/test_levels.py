"""Levels from solve rates, and one scale per run."""

import collections
import dataclasses
import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tools.curation.levels import link_scales, percentile_levels, put_on_scale
from tools.curation.row import Row

RATES = st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=60)


def test_ten_distinct_rates_make_five_pairs():
    rates = [i / 10 for i in range(10)]
    assert percentile_levels(rates) == [5, 5, 4, 4, 3, 3, 2, 2, 1, 1]


@pytest.mark.failure(52)
def test_ties_share_a_level_and_the_least_solved_are_the_hardest():
    # four ones span ranks 0..4 of ten: their middle, 0.2, lies in level 2
    assert percentile_levels([0.0] * 6 + [1.0] * 4) == [5] * 6 + [2] * 4
    assert percentile_levels([0.0] * 9 + [0.5]) == [5] * 9 + [1]
    assert percentile_levels([0.25] * 8 + [0.5, 0.5]) == [5] * 8 + [1, 1]
    assert percentile_levels([0.0] * 3) == [5] * 3
    assert percentile_levels([0.5] * 7) == [3] * 7
    assert percentile_levels([None, 1.0]) == [None, 3]
    assert percentile_levels([]) == []


@given(RATES)
def test_levels_never_rise_with_the_rate(rates):
    levels = percentile_levels(rates)
    known = sorted((r, v) for r, v in zip(rates, levels, strict=True) if r is not None)
    assert all(a[1] >= b[1] for a, b in zip(known, known[1:], strict=False))
    assert all((r is None) == (v is None) for r, v in zip(rates, levels, strict=True))


@pytest.mark.failure(52)
@given(RATES)
def test_level_five_is_empty_only_where_nothing_is_told_apart(rates):
    known = {rate for rate in rates if rate is not None}
    assert (5 in percentile_levels(rates)) == (0 in known or len(known) > 1)


@given(st.permutations(range(25)))
def test_distinct_rates_make_equal_levels_in_any_order(order):
    sizes = collections.Counter(percentile_levels([i / 25 for i in order]))
    assert sizes == {level: 5 for level in range(1, 6)}


def test_real_solve_rates_make_equal_levels_up_to_ties(shared_data):
    path = shared_data / "train" / "oneshot_dsr_sub_1209.jsonl"
    rates = [json.loads(line)["solve_rate"] for line in path.read_text().splitlines()]
    levels = percentile_levels(rates)
    sizes = collections.Counter(levels)
    # a level may differ from a fifth by no more than the tied blocks at its two edges
    largest_tie = max(collections.Counter(rates).values())
    assert all(abs(sizes[k] - 1209 / 5) <= largest_tie for k in range(1, 6))
    worst = [
        min(r for r, v in zip(rates, levels, strict=True) if v == k) for k in (1, 2)
    ]
    assert worst[0] > worst[1]


def graded(key, level, scale, rate=None):
    return Row(
        id=key,
        problem="?",
        source="weak",
        level=level,
        level_source=scale,
        solve_rate=rate,
        key=key,
    )


def on_scale(row, scale, links):
    row = dataclasses.replace(row)
    put_on_scale(row, scale, links)
    return row


def test_levels_of_another_scale_are_noted_not_mixed():
    row = graded("a", 3, "math")
    assert on_scale(row, "math", {}) == row
    given_up = on_scale(row, "deepscaler", {})
    assert (given_up.level, given_up.level_source) == (None, None)
    assert given_up.meta == {"other_level": {"level": 3, "scale": "math"}}
    assert row.meta == {}


def test_another_scale_is_taken_over_by_way_of_the_rows_that_both_graded():
    # What one calls 1 and 2 is 1 to the other, its 3 is 2 or 3, its 4 and 5 are 5.
    both = {1: [1, 1], 2: [1, 1], 3: [2, 3], 4: [5, 5], 5: [5, 5]}
    pairs = [(theirs, ours) for theirs, some in both.items() for ours in some]
    rows = [
        graded(str(i), level, scale)
        for i, pair in enumerate(pairs)
        for level, scale in zip(pair, ("other", "ours"), strict=True)
    ]
    rows.append(graded("alone", 4, "third"))
    links = link_scales(rows, "ours", 10)
    assert links.keys() == {"other"}
    levels = [
        on_scale(graded("new", level, "other"), "ours", links).level
        for level in range(1, 6)
    ]
    assert levels == [1, 1, 2, 5, 5]
    new = on_scale(graded("new", 4, "other"), "ours", links)
    assert (new.level, new.level_source) == (5, "ours")
    assert new.meta["level_from"] == "other"
    assert new.meta["other_level"] == {"level": 4, "scale": "other"}
    assert on_scale(rows[-1], "ours", links).level is None
    # one row too few, none asked for, or no agreement on which are harder
    assert link_scales(rows, "ours", 11) == {}
    assert link_scales(rows, "ours", 0) == {}
    turned = [graded(r.key, 6 - r.level, "turned") for r in rows[:20:2]]
    assert link_scales([*rows, *turned], "ours", 10).keys() == {"other"}
    assert link_scales(rows, None, 10) == {}


def test_a_solve_rate_is_a_scale_as_well():
    rows = [graded(str(i), 1 + i // 4, "ours", rate=1 - i / 20) for i in range(20)]
    links = link_scales(rows, "ours", 20)
    unlevelled = [graded("new", None, None, rate) for rate in (0.0, 0.5, 1.0)]
    found = [on_scale(row, "ours", links) for row in unlevelled]
    assert [row.level for row in found] == [5, 3, 1]
    assert "other_level" not in found[0].meta
    assert found[0].meta["level_from"] == "solve_rate:weak"


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=8))
def test_levels_by_way_of_a_link_never_fall_with_the_difficulty(pairs):
    rows = [
        graded(str(i), level, scale)
        for i, pair in enumerate(pairs)
        for level, scale in zip(pair, ("other", "ours"), strict=True)
    ]
    links = link_scales(rows, "ours", 8)
    new = [graded("new", level, "other") for level in range(1, 6)]
    levels = [on_scale(row, "ours", links).level for row in new if links]
    assert levels == sorted(levels)
    assert set(levels) <= {ours for _, ours in pairs}
