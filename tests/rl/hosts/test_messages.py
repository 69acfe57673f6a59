"""Messages: all that is said comes over; what could run code cannot be said or read."""

import dataclasses
import json
import pathlib
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.batches.packing import pack_groups
from rl.hosts.messages import decode, encode
from rl.types import Batch
from rl.update.hyper import make_hyper
from rollout.types import SamplingParams
from tests.rl.examples import make_group

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.text(), st.lists(_VALUES, max_size=3), st.dictionaries(st.text(), _VALUES))
def test_plain_values_come_over_as_they_are(name, args, kwargs):
    kwargs.pop("name", None)
    assert decode(encode(name, *args, **kwargs)) == (name, tuple(args), kwargs)


def _batch(seed):
    rng = np.random.default_rng(seed)
    fields = {}
    for field in dataclasses.fields(Batch):
        dtype = bool if field.name in ("off_policy", "stale") else np.float32
        fields[field.name] = rng.normal(size=(2, 3)).astype(dtype)
    fields["token_ids"] = rng.integers(0, 9, (2, 3)).astype(np.int32)[:, ::-1]
    return Batch(**fields)


def test_a_steps_batches_and_hypers_come_over_bit_for_bit():
    batches = [[_batch(0), _batch(1)], [_batch(2)]]
    hyper = make_hyper(
        learning_rate=1e-6,
        eps_low=0.2,
        eps_high=0.28,
        temperature=1.0,
        first_update=True,
    )
    params = SamplingParams(n=4, max_tokens=8, stop_token_ids=(3, 5))
    name, args, kwargs = decode(encode("update", batches, [hyper], params, seed=2**62))
    assert name == "update" and kwargs == {"seed": 2**62} and args[2] == params
    assert [len(micro) for micro in args[0]] == [2, 1]
    for micro, expected in zip(args[0], batches, strict=True):
        for one, other in zip(micro, expected, strict=True):
            for field in dataclasses.fields(Batch):
                a, b = getattr(one, field.name), getattr(other, field.name)
                np.testing.assert_array_equal(a, b)
                assert a.dtype == b.dtype
    assert args[1][0].learning_rate.dtype == np.float32
    assert type(args[1][0].first_update) is np.bool_ and args[1] == [hyper]


def test_a_step_takes_eight_bytes_for_a_position():
    """Ids and log-probabilities; masks, positions, advantages cost next to nothing."""
    group = make_group([True, False], lengths=[3000, 2500], prompt=1000)
    packed = pack_groups(
        [group] * 4, version=0, sampler_is_trainer=True, advantage="std",
        aggregation="token", constant=1, prompts_per_update=2, row_lengths=(4096,),
        micro_tokens=2 * 4096, row_multiple=1, share_prompts=False,
    )  # fmt: skip
    message = encode("update", packed, [])
    positions = sum(batch.token_ids.size for micro in packed for batch in micro)
    assert positions == 8 * 4096
    assert 8 * positions < len(message) < 8.4 * positions
    for micro, expected in zip(decode(message)[1][0], packed, strict=True):
        for one, other in zip(micro, expected, strict=True):
            for field in dataclasses.fields(Batch):
                a, b = getattr(one, field.name), getattr(other, field.name)
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                assert a.tobytes() == b.tobytes()


@pytest.mark.failure(54)
@pytest.mark.parametrize(
    "value", [object(), {1: 2}, np.array(["text"]), np.array([None]), pathlib.Path(".")]
)
def test_what_is_not_stated_cannot_be_said(value):
    with pytest.raises(TypeError, match="update: a message holds no "):
        encode("update", value)


class _Runs:
    def __reduce__(self):
        return (pytest.fail, ("code was run",))


@pytest.mark.failure(54)
def test_what_is_no_message_is_an_error_and_runs_nothing():
    good = encode("publish", 3, np.arange(4))

    def header(content):
        text = json.dumps(content).encode()
        return len(text).to_bytes(8, "little") + text

    for bad in (
        b"",
        pickle.dumps(_Runs()),
        good[:-1],
        good + b"1",
        header({"a": 1}),
        header(["x", ["list", []], {"a": 1}]),
        header(["x", ["list", [["carrier", "Popen", {}]]], ["dict", {}]]),
        header(["x", ["list", [["carrier", "Hyper", {"a": 1}]]], ["dict", {}]]),
        header(["x", ["list", [["array", "|O", [1]]]], ["dict", {}]]),
        header(["x", ["list", [["eval", "1"]]], ["dict", {}]]),
        header(["x", ["list", [["runs", "<i4", [9], 2]]], ["dict", {}]]),
        header(["x", ["list", [["runs", "<i4", [2**60], 1]]], ["dict", {}]]) + bytes(8),
    ):
        with pytest.raises(ValueError, match="no message of a run's processes"):
            decode(bad)
