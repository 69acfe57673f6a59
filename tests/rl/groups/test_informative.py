"""The filter on literal numbers."""

import pytest

from rl.groups.informative import informative
from tests.rl.examples import make_group


@pytest.mark.failure(19)
def test_the_filter_reads_raw_accuracy_and_not_the_shaped_reward():
    wrong = make_group([False] * 3, lengths=[3, 9, 20], rewards=[-1.0, -1.4, -1.9])
    assert not informative(wrong)
    right = make_group([True] * 3, rewards=[1.0, 0.5, 0.1])
    assert not informative(right)
    assert informative(make_group([True, False, False]))
