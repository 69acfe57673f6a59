"""What changed in a tensor is found, written and applied without loss."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.vllm import delta

KINDS = [np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)]


def _pair(size, places, kind, seed=0):
    bits = np.random.default_rng(seed).integers(0, 256, size * kind.itemsize, np.uint8)
    old = bits.view(kind)
    new = old.copy()
    new.view(f"u{kind.itemsize}")[places] += 1
    return old, new


def _same(one, other):
    return one.tobytes() == other.tobytes()


@given(
    st.integers(1, 3000).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), max_size=40))
    ),
    st.sampled_from(KINDS),
)
def test_applying_gives_the_new_bits(size_and_places, kind):
    size, places = size_and_places
    old, new = _pair(size, sorted(places), kind)
    data = delta.encode(old, new)
    if data is not None:
        assert data.size <= max(8, size * kind.itemsize // 4)
        held = old.copy()
        delta.apply(held, data)
        assert _same(held, new)


def test_a_place_and_its_bits_are_three_bytes():
    old, new = _pair(10_000, [0, 1, 254, 508, 763, 9999], KINDS[0])
    data = delta.encode(old, new)
    # Distances 0 1 253 254 255 9236: one byte up to 254, then one more for each 255.
    steps = [0, 1, 253, 254, 255, 0, *[255] * 36, 9236 - 36 * 255]
    assert data[8 : 8 + len(steps)].tolist() == steps
    assert data.size == 8 + len(steps) + 6 * 2


def test_nothing_changed_is_eight_bytes():
    old, new = _pair(5, [], KINDS[2])
    assert delta.encode(old, new).tolist() == [0] * 8


def test_signs_of_zero_and_kinds_of_nan_are_bits_too():
    old = np.zeros(1000, np.float32)
    new = old.copy()
    new[7], new[9] = -0.0, np.nan
    old[11] = new[11] = np.nan
    data = delta.encode(old, new)
    assert data[:8].view(np.uint64)[0] == 2
    delta.apply(old, data)
    assert _same(old, new)


@pytest.mark.parametrize("kind", KINDS)
def test_many_changes_are_no_delta(kind):
    old, new = _pair(100_000, slice(None), kind)
    assert delta.encode(old, new) is None
    old, new = _pair(100_000, slice(0, None, 3), kind)
    assert delta.encode(old, new) is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: d[:5], "a delta of 5 bytes"),
        (lambda d: d[:-1], "for 3 changes"),
        (lambda d: np.concatenate([[200], d[1:]]).astype(np.uint8), "for 200 changes"),
        (lambda d: np.concatenate([d[:9], [255], d[10:]]).astype(np.uint8), "2 places"),
    ],
)
def test_a_delta_that_does_not_fit_changes_nothing(damage, words):
    old, new = _pair(100, [3, 50, 99], KINDS[0])
    data = damage(delta.encode(old, new))
    held = old.copy()
    with pytest.raises(ValueError, match=words):
        delta.apply(held, data)
    assert _same(held, old)
