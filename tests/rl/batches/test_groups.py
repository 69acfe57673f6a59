"""Token weights and the filter on literal numbers."""

import numpy as np
import pytest

from rl.batches.groups import informative, token_weights
from tests.rl.examples import make_group


@pytest.mark.failure(19)
def test_the_filter_reads_raw_accuracy_and_not_the_shaped_reward():
    wrong = make_group([False] * 3, lengths=[3, 9, 20], rewards=[-1.0, -1.4, -1.9])
    assert not informative(wrong)
    right = make_group([True] * 3, rewards=[1.0, 0.5, 0.1])
    assert not informative(right)
    assert informative(make_group([True, False, False]))


def test_token_weights_of_every_mode():
    groups = [
        make_group([True, False], lengths=[2, 4]),
        make_group([True, False], lengths=[1, 3]),
    ]

    def weights(mode):
        return np.concatenate(token_weights(groups, aggregation=mode, constant=8))

    np.testing.assert_allclose(weights("token"), [1 / 10] * 4)
    np.testing.assert_allclose(weights("group"), [1 / 12, 1 / 12, 1 / 8, 1 / 8])
    np.testing.assert_allclose(weights("sequence"), [1 / 8, 1 / 16, 1 / 4, 1 / 12])
    np.testing.assert_allclose(weights("constant"), [1 / 32] * 4)
