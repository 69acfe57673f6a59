"""Packing: nothing lost, nothing split, little padding."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from configs import base
from rl.groups.packing import best_fit, micro_rows, pack_groups, padding_fraction
from tests.rl.examples import make_group, make_segments, pack


def _rows(lengths, capacity):
    """The indices in each row, of segments that share no prompt."""
    own = range(len(lengths))
    rows = best_fit(lengths, capacity, own, [0] * len(own))
    return [[i for group in row for i in group] for row in rows]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.integers(50, 90))
def test_rows_hold_every_segment_once_within_capacity(lengths, capacity):
    rows = _rows(lengths, capacity)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= capacity for row in rows)
    # First-fit decreasing leaves at most one row half empty.
    half_empty = [r for r in rows if sum(lengths[i] for i in r) <= capacity / 2]
    assert len(half_empty) <= 1


def test_a_batch_says_what_each_token_is():
    group = make_group([True, False], lengths=[2, 3], prompt=2)
    segments = make_segments([group])
    (batch,) = pack(segments, (12,), 12)
    long, short = segments[1].token_ids, segments[0].token_ids
    assert batch.token_ids[0].tolist() == [*long, *short, 0, 0, 0]
    assert batch.segment_ids[0].tolist() == [1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0]
    assert batch.positions[0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 0, 0]
    assert batch.loss_mask[0].tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0]
    assert batch.advantages[0, 2] < 0 < batch.advantages[0, 7]
    assert not batch.off_policy.any()


def test_completions_in_one_row_share_their_prompt():
    group = make_group([True, False], lengths=[2, 3], prompt=4)
    segments = make_segments([group])
    (batch,) = pack(segments, (12,), 12, share_prompts=True)
    *prompt, last = group.prompt_ids
    short, long = (c.token_ids for c in group.completions)
    assert batch.token_ids[0].tolist() == [*prompt, last, *long, last, *short, 0, 0]
    assert batch.segment_ids[0].tolist() == [1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 0, 0]
    assert batch.prefix_ids[0].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    assert batch.positions[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 0, 0]
    assert batch.loss_mask[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=9), min_size=1),
    st.integers(1, 12),
)
def test_shared_rows_hold_every_completion_once(lengths, prompt):
    groups = [
        make_group([True] * len(of_group), lengths=of_group, prompt=prompt, seed=i)
        for i, of_group in enumerate(lengths)
    ]
    batches = pack(make_segments(groups), (64,), 64, share_prompts=True)
    assert sum(int(b.loss_mask.sum()) for b in batches) == sum(map(sum, lengths))
    plain = pack(make_segments(groups), (64,), 64)
    filled = [sum(int((b.segment_ids > 0).sum()) for b in p) for p in (batches, plain)]
    assert filled[0] <= filled[1]


def test_padding_is_small_on_lognormal_lengths():
    """p95/median = 4, 7B sizes: 32 groups of 16, rows of 4,096."""
    rng = np.random.default_rng(0)
    groups = []
    for i in range(32):
        lengths = np.clip(rng.lognormal(np.log(700), 0.843, 16), 1, 3072)
        prompt = int(np.clip(rng.lognormal(np.log(150), 0.4), 30, 1024))
        sizes = dict(lengths=lengths.astype(int).tolist(), prompt=prompt)
        groups.append(make_group([True] * 16, **sizes, seed=i))
    segments = make_segments(groups)
    for share_prompts in (False, True):
        batches = pack(segments, (4096,), 4096, share_prompts=share_prompts)
        assert padding_fraction(batches) < 0.03


@pytest.mark.parametrize(
    "version,backend,off_policy",
    [(3, "jax", False), (4, "jax", True), (3, "vllm", True)],
)
def test_tokens_of_another_version_or_sampler_are_off_policy(
    version, backend, off_policy
):
    config = base.get_config()
    config.rollout.backend = backend
    group = make_group([True, False], version=3)
    c = base.from_config(config)
    ((batch,),) = pack_groups([group], c, version=version, row_multiple=1)
    assert (batch.off_policy[batch.loss_mask] == off_policy).all()
    assert (batch.stale[batch.loss_mask] == (version == 4)).all()
    assert not batch.off_policy[~batch.loss_mask].any()


def test_micro_batches_have_one_shape():
    groups = [make_group([True, False], lengths=[9, 7], seed=i) for i in range(20)]
    batches = pack(make_segments(groups), (8, 16), 64, row_multiple=2)
    assert {b.token_ids.shape for b in batches} == {(4, 16)}
    assert sum(int(b.loss_mask.sum()) for b in batches) == 20 * 16
    assert micro_rows(4096, 1, 8) == 8  # never less than a row per device


def test_rows_are_as_long_as_fills_them_best():
    # Of each group 3 positions are shared, and its completions take 5 each: 23.
    same = dict(lengths=[4] * 4, prompt=4)
    segments = make_segments([make_group([True] * 4, **same, seed=i) for i in range(4)])

    def shapes(*row_lengths):
        batches = pack(segments, row_lengths, 64, share_prompts=True)
        return [b.token_ids.shape for b in batches]

    # The shortest that holds a completion takes each prompt four times.
    assert shapes(10) == [(6, 10)] * 3
    assert shapes(32) == [(2, 32)] * 2
    assert shapes(10, 24, 32) == [(2, 24)] * 2
    # The same number of positions: the shorter rows, whose attention costs less.
    assert shapes(24, 48) == [(2, 24)] * 2


def test_a_segment_longer_than_every_row_is_an_error():
    message = "has 9 tokens, but the longest row has 8; raise"
    with pytest.raises(ValueError, match=message):
        _rows([3, 9], 8)
