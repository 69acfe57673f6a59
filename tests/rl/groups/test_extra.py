"""Groups from elsewhere: where they go, and that their tokens count as off-policy."""

import numpy as np
import pytest

from configs import base
from rl.groups.extra import demonstration, load_extra_groups
from rl.groups.packing import pack_groups
from tests.rl.examples import make_group, make_problem

REPLAYED = make_group([True, False], lengths=[2, 4], seed=9, version=3)


def three(groups, step, problems):
    shown = demonstration(problems[0], np.array([7, 8]), [5, 6, step])
    return [(REPLAYED, np.array([1.0, -1.0])), (shown, [np.arange(3.0)])] + [
        (group, np.zeros(len(group.rewards))) for group in groups[:1]
    ]


def endless(groups):
    return [(REPLAYED, np.array([np.inf, 0]))]


def nothing(groups):
    groups[0]  # and no return


def bare(groups):
    return [(REPLAYED.completions, np.zeros(2))]


def failing(groups):
    for group in groups:
        yield group, group.advantage


def unknown(rewards):
    return []


def _packed(function, groups, version):
    extra = load_extra_groups(f"{__name__}:{function}", problems=[make_problem(0)])
    config = base.get_config()
    config.batch.prompts_per_update = 2
    config.batch.row_lengths, config.batch.micro_tokens = (32,), 128
    how = dict(version=version, row_multiple=1, extra_groups=extra)
    return pack_groups(groups, base.from_config(config), **how)


def test_mini_batches_get_them_in_turn_and_their_tokens_are_off_policy():
    groups = [make_group([True, False], seed=i, version=3) for i in range(4)]
    (first,), (second,) = _packed("three", groups, version=3)
    # Two groups of two completions of four tokens each; then the added ones.
    assert first.loss_mask.sum() == 16 + 6 + 8 and second.loss_mask.sum() == 16 + 3
    assert first.off_policy.sum() == first.stale.sum() == 6 + 8
    shown = second.off_policy
    assert second.token_ids[shown].tolist() == [5, 6, 3]
    assert second.advantages[shown].tolist() == [0, 1, 2]
    assert not second.sampler_logprobs[shown].any()
    np.testing.assert_allclose(second.loss_weights[second.loss_mask], 1 / 19)
    # What is replayed stays as it was.
    assert (REPLAYED.completions[0].versions == 3).all()


def test_what_is_wrong_is_one_line():
    groups = [make_group([True, False])]
    with pytest.raises(ValueError, match=r"endless': .*returned \[inf, 0.0\]"):
        _packed("endless", groups, version=0)
    wrong = "unknown argument 'rewards'; use only groups,"
    with pytest.raises(ValueError, match=wrong):
        _packed("unknown", groups, version=0)
    with pytest.raises(ValueError, match=r"failing': .*test_extra.py:\d+: Attribute"):
        _packed("failing", groups, version=0)
    assert load_extra_groups("") is None


@pytest.mark.failure(196)
@pytest.mark.parametrize("function, shown", [("nothing", "None"), ("bare", r"\[\(\(C")])
def test_what_is_no_list_of_pairs_is_shown(function, shown):
    wrong = rf"{function}': must return a list of \(Group, advantages\), not {shown}"
    with pytest.raises(ValueError, match=wrong):
        _packed(function, [make_group([True, False])], version=0)
