"""Weights of tokens on literal numbers, and tokens that are rejected."""

import numpy as np
import pytest

from configs.base import Objective, Rollout, RunConfig
from rl.groups.packing import weigh
from rl.update.rejection import reject
from tests.rl.examples import make_group, make_segments, pack

# Tokens of the two completions of each of two groups.
LENGTHS = ((2, 4), (1, 3))


def _packed(rows=4):
    groups = [
        make_group([True, False], lengths=list(lengths), prompt=2)
        for lengths in LENGTHS
    ]
    return pack(make_segments(groups, off_policy=True), (6,), 6 * rows)


def _by_completion(batches):
    """Return the weights of each completion's tokens, by group and length."""
    found = {}
    for batch in batches:
        for row in range(len(batch.loss_mask)):
            for segment in range(1, batch.segment_ids[row].max() + 1):
                own = batch.loss_mask[row] & (batch.segment_ids[row] == segment)
                if own.any():
                    group = int(batch.group_ids[row][own][0])
                    found[group, int(own.sum())] = batch.loss_weights[row][own]
    return found


def _reject(packed, weights, aggregation):
    """Rejects by weights `[R, T]` of each micro-batch."""
    of_tokens = np.stack(weights)[np.stack([b.loss_mask for b in packed])]
    rollout = Rollout(max_response_tokens=8)
    c = RunConfig(objective=Objective(aggregation=aggregation), rollout=rollout)
    return reject(packed, rejection=lambda *_: of_tokens, c=c)


@pytest.mark.failure(22)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize(
    "aggregation,expected",
    [
        ("token", (1 / 10, 1 / 10, 1 / 10, 1 / 10)),
        ("group", (1 / 12, 1 / 12, 1 / 8, 1 / 8)),
        ("sequence", (1 / 8, 1 / 16, 1 / 4, 1 / 12)),
        ("constant", (1 / 32, 1 / 32, 1 / 32, 1 / 32)),
    ],
)
def test_every_aggregation_counts_the_whole_mini_batch(rows, aggregation, expected):
    weighed = weigh(_packed(rows), aggregation=aggregation, constant=8)
    found = _by_completion(weighed)
    flat = [(group, n) for group, lengths in enumerate(LENGTHS) for n in lengths]
    for (group, length), weight in zip(flat, expected, strict=True):
        np.testing.assert_allclose(found[group, length], [weight] * length, rtol=1e-6)
    assert all((b.loss_weights[~b.loss_mask] == 0).all() for b in weighed)


@pytest.mark.failure(22)
@pytest.mark.parametrize(
    "aggregation,expected",
    [
        # Left are three of the four tokens of the first group's second completion, and
        # the second group's second completion.
        ("token", (1 / 6, 1 / 6)),
        ("group", (1 / 6, 1 / 6)),
        ("sequence", (1 / 6, 1 / 6)),
        ("constant", (1 / 16, 1 / 16)),
    ],
)
def test_rejected_tokens_are_in_no_divisor(aggregation, expected):
    packed = _packed()
    weights = [np.ones(b.loss_mask.shape) for b in packed]
    (batch,) = packed
    for row in range(len(batch.loss_mask)):
        for segment in range(1, batch.segment_ids[row].max() + 1):
            of_segment = batch.segment_ids[row] == segment
            (own,) = np.nonzero(batch.loss_mask[row] & of_segment)
            if len(own) in (1, 2):
                weights[0][row, own] = 0
            elif len(own) == 4:
                weights[0][row, own[1]] = 0
    kept = _reject(packed, weights, aggregation)
    found = _by_completion(kept)
    assert found.keys() == {(0, 3), (1, 3)}
    np.testing.assert_allclose(found[0, 3], [expected[0]] * 3, rtol=1e-6)
    np.testing.assert_allclose(found[1, 3], [expected[1]] * 3, rtol=1e-6)
    assert not (kept[0].off_policy & ~kept[0].loss_mask).any()
    assert packed[0].loss_mask.sum() == 10  # the arguments stay as they were


def test_weights_of_a_correction_multiply_those_of_the_average():
    packed = _packed()
    halves = [np.full(b.loss_mask.shape, 0.5) for b in packed]
    kept = _reject(packed, halves, "token")
    np.testing.assert_allclose(kept[0].loss_weights.sum(), 0.5, rtol=1e-6)


def test_a_mini_batch_without_any_token_left_weighs_nothing():
    packed = _packed()
    nothing = [np.zeros(b.loss_mask.shape) for b in packed]
    for aggregation in ("token", "group", "sequence", "constant"):
        kept = _reject(packed, nothing, aggregation)
        assert all(not b.loss_weights.any() for b in kept)
