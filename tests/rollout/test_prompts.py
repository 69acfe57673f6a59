"""Prompts in rows: each token once, what is common once a row."""

import numpy as np
import pytest

from rollout.prompts import common_length, pack_prompts
from rollout.seeds import generator


def test_a_page_in_common_stands_once_in_a_row_and_every_prompt_sees_it():
    prefix = [50, 51, 52]
    prompts = [[*prefix, 1, 2, 9], [*prefix, 3, 9], [*prefix, 4, 5, 6, 9]]
    rows, spans = pack_prompts(prompts, shared=3, rows=2, length=7)
    assert rows.ids.tolist() == [[50, 51, 52, 1, 2, 3, 0], [50, 51, 52, 4, 5, 6, 0]]
    assert rows.positions.tolist() == [[0, 1, 2, 3, 4, 3, 0], [0, 1, 2, 3, 4, 5, 0]]
    assert rows.segments.tolist() == [[1, 1, 1, 2, 2, 3, 0], [1, 1, 1, 2, 2, 2, 0]]
    assert rows.prefixes.tolist() == [[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 0]]
    assert spans.row.tolist() == [0, 0, 1]
    assert spans.start.tolist() == [3, 5, 3]
    assert spans.length.tolist() == [5, 4, 6]  # but for the last token, 9
    assert spans.shared == 3


def test_what_has_no_room_waits_in_its_order():
    prompts = [[1] * 6, [2] * 6, [3] * 2]
    _, spans = pack_prompts(prompts, shared=0, rows=1, length=8)
    assert len(spans.row) == 1  # and not the third, which would fit


@pytest.mark.parametrize(
    "prompts,common",
    [
        ([[1, 2, 3]], 2),  # the last token is not read
        ([[1, 2, 3], [1, 2, 3]], 2),
        ([[1, 2], [1, 2, 3, 4]], 1),
        ([[5, 2, 3], [1, 2, 3]], 0),
        ([[1, 2, 3, 4], [1, 2, 4, 4], [1, 2, 3, 9]], 2),
        ([[7], [7, 8, 9]], 0),
    ],
)
def test_common_length(prompts, common):
    assert common_length(prompts) == common


@pytest.mark.parametrize("seed", range(20))
def test_every_prompt_is_found_again_where_it_is_said_to_be(seed):
    rng = generator(seed)
    prefix = rng.integers(100, 200, rng.integers(0, 9)).tolist()
    prompts = [
        [*prefix, *rng.integers(0, 99, rng.integers(1, 20)).tolist()]
        for _ in range(rng.integers(1, 30))
    ]
    shared = common_length(prompts)
    rows, spans = pack_prompts(
        prompts, shared=shared, rows=int(rng.integers(1, 4)), length=32
    )
    assert len(spans.row) >= 1
    seen = np.zeros(rows.ids.shape, int)
    seen[np.unique(spans.row), :shared] = 1
    for i, prompt in enumerate(prompts[: len(spans.row)]):
        row, start = spans.row[i], spans.start[i]
        own = slice(start, start + spans.length[i] - shared)
        found = [*rows.ids[row, :shared], *rows.ids[row, own]]
        assert found == prompt[:-1]
        at = [*rows.positions[row, :shared], *rows.positions[row, own]]
        assert at == list(range(len(prompt) - 1))
        seen[row, own] += 1
        assert len(set(rows.segments[row, own])) <= 1
    assert (seen == (rows.segments != 0)).all()
    for row in rows.segments:  # ascending, padding at the end
        real = row[row != 0]
        assert (np.diff(real) >= 0).all() and (row[: len(real)] != 0).all()
