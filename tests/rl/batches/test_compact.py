"""Arrays as runs: bit for bit the same, and small where they stand still."""

import numpy as np
import pytest

from rl.batches import compact


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0, np.int32),
        np.zeros(1, np.float32),
        np.zeros((), np.float32),
        np.arange(1000, dtype=np.int32),
        np.arange(1000, dtype=np.int64).reshape(10, 100)[:, ::-1],
        np.repeat(np.arange(9, dtype=np.int32), 100),
        np.repeat([True, False], 300),
        np.array([0.0, -0.0] * 50, np.float32),
        np.random.default_rng(0).normal(size=500).astype(np.float32),
    ],
    ids=lambda a: f"{a.dtype}-{a.size}",
)
def test_arrays_of_any_kind_are_told_in_as_few_numbers_as_they_need(array):
    parts = compact.encode(array)
    assert parts.keys() <= {*compact.KINDS}
    again = compact.decode(parts, array.shape, array.dtype)
    assert again.dtype == array.dtype and again.shape == array.shape
    assert again.tobytes() == array.tobytes()
    if array.size == 1000 and array.ndim == 1:  # a ramp
        assert sum(part.nbytes for part in parts.values()) < 20


@pytest.mark.parametrize("starts", [[], [1, 2], [0, 2, 2], [0, 3, 1], [0, 5]])
def test_runs_that_do_not_fill_an_array_are_refused(starts):
    starts = np.array(starts, np.uint32)
    parts = {"starts": starts, "steps": np.ones(len(starts), np.uint32)}
    with pytest.raises(ValueError, match="^runs that do not fill 5 entries$"):
        compact.decode(parts, (5,), np.int32)
