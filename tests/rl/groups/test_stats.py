"""The filter, and repetitive and duplicated completions."""

import numpy as np
import pytest

from rl.groups.stats import duplicated, is_repetitive
from tests.rl.examples import make_group


def _ids(*parts):
    return np.concatenate([np.asarray(part, np.int32) for part in parts])


def test_a_loop_is_found_whatever_its_length_and_a_text_is_none():
    rng = np.random.default_rng(0)
    text = rng.integers(0, 150_000, 1000)
    assert not is_repetitive(_ids(text))
    for period in (1, 2, 7, 30, 100):
        assert is_repetitive(_ids(text, np.tile(text[:period], 512 // period + 1)))
    # Said twice is not said over and over: a check of one's own result.
    assert not is_repetitive(_ids(text[:40], text[40:50], text[:40], text[60:90]))
    # A few tokens are no circle: a short answer, digits.
    assert not is_repetitive(_ids([5] * 10)) and not is_repetitive(_ids([]))
    assert is_repetitive(_ids([5] * 40))


def test_tokens_in_another_order_are_another_run():
    """By their sum, or their set, all runs of a permutation cycle would be alike."""
    rng = np.random.default_rng(1)
    assert not is_repetitive(_ids(*(rng.permutation(20) for _ in range(20))))


def test_duplicates_are_counted_on_both_sides_and_within_their_group():
    a, b = _ids([1, 2, 3]), _ids([1, 2])
    assert duplicated([a, b, a.copy()]).tolist() == [True, False, True]
    assert duplicated([a]).tolist() == [False] and duplicated([]).tolist() == []


@pytest.mark.failure(19)
def test_the_filter_reads_raw_accuracy_and_not_the_shaped_reward():
    wrong = make_group([False] * 3, lengths=[3, 9, 20], rewards=[-1.0, -1.4, -1.9])
    assert not wrong.informative()
    right = make_group([True] * 3, rewards=[1.0, 0.5, 0.1])
    assert not right.informative()
    assert make_group([True, False, False]).informative()
