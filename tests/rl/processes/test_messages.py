"""Messages arrive unchanged; code can be neither sent nor read."""

import dataclasses
import pathlib
import pickle

import numpy as np
import pytest
from flax import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.processes.messages import decode, encode
from rl.types import Batch
from rollout.types import SamplingParams
from tests.rl.examples import example_hyper

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.text(), st.lists(_VALUES, max_size=3), st.dictionaries(st.text(), _VALUES))
def test_plain_values_arrive_unchanged(name, args, kwargs):
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


def test_a_steps_batches_and_hypers_arrive_bit_for_bit():
    batches = [[_batch(0), _batch(1)], [_batch(2)]]
    hyper = example_hyper()
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


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, np.array(["text"]), np.array([None]), pathlib.Path(".")]
)
def test_other_types_cannot_be_sent(value):
    with pytest.raises(TypeError, match="'update': cannot send an argument of "):
        encode("update", value)


class _Runs:
    def __reduce__(self):
        return (pytest.fail, ("code was run",))


@pytest.mark.failure(40)
def test_bad_bytes_are_an_error_and_run_nothing():
    good = encode("publish", 3, np.arange(4))
    records = [("Popen", {}), ("Hyper", {"a": 1}), ("tuple", 1)]
    contents = [
        {"a": 1},
        [1, [], {}],
        ["x", [], [1]],
        *(["x", [{"__kind__": k, "__content__": c}], {}] for k, c in records),
    ]
    packed = map(serialization.msgpack_serialize, contents)
    for bad in (b"", pickle.dumps(_Runs()), good[:-1], good + b"1", *packed):
        with pytest.raises(ValueError, match="received an invalid message"):
            decode(bad)
