"""The benches' own arithmetic: what a figure is a fraction of."""

import numpy as np

from tools.bench.work import Shape, make_tokens


def test_operations_of_a_forward_pass_are_counted_beyond_32_bits():
    """By hand: 32 rows of 2,013,265,920 + 134,217,728 + 2,147,483,648; the last, the
    head of one row, is -2**31 in the int32 of its lengths."""
    shape = Shape(vocab=32768)
    assert shape.forward_flops(make_tokens(shape)["lengths"]) == 2**37


def test_lognormal_lengths_have_the_spread_and_the_longest_that_they_name():
    lengths = make_tokens(Shape(groups=500, lengths="lognormal"))["lengths"]
    assert lengths.max() == 128
    spread = np.quantile(lengths, 0.95) / np.median(lengths)
    assert 3.5 < spread < 4.5
