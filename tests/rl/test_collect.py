"""Dynamic sampling: batches exactly full, rounds bounded, nothing lost or split."""

import numpy as np
import pytest

from rl.collect import Collector, Shortfall
from rl.data import ProblemStream
from rl.reward import overlong_penalty
from rollout.types import Completion, SamplingParams, SeedStream
from tests.rl.examples import make_problem

PARAMS = SamplingParams(n=4, max_tokens=20, stop_token_ids=(0,))


class Coins:
    """A sampler whose completions are right by a seeded coin of each problem's own."""

    def __init__(self, chance):
        self._chance, self.calls = chance, []

    def sample(self, prompts, params, *, seed, on_finished=None):
        rng = np.random.default_rng(seed)
        self.calls.append(len(prompts))
        groups = []
        for p, prompt in enumerate(prompts):
            group = []
            for s in range(params.n):
                right = rng.random() < self._chance(prompt[0])
                ids = np.array([1 if right else 2] * rng.integers(1, 20), np.int32)
                group.append(
                    Completion(
                        token_ids=ids,
                        sampler_logprobs=np.zeros(len(ids), np.float32),
                        finish_reason="stop",
                        versions=np.zeros(len(ids), np.int32),
                    )
                )
                if on_finished:
                    on_finished(p, s, group[-1])
            groups.append(group)
        return groups


def _reward(texts, problems):
    correct = np.array([text.startswith("1") for text in texts])
    return correct, np.where(correct, 1, -1).astype(np.float32)


def _collector(chance, **changes):
    sampler = Coins(chance)
    options = dict(
        filter=True, max_rounds=6, max_age=1, on_shortfall="skip", max_shortfalls=3
    )
    problems = [make_problem(i) for i in range(64)]
    collector = Collector(
        problems=ProblemStream(problems, seed=0),
        sample=sampler.sample,
        reward=_reward,
        encode=lambda problem: [int(problem.id[1:])],
        decode=lambda ids: "".join(map(str, ids)),
        seeds=SeedStream(0),
        check_stop=lambda: None,
        **{**options, **changes},
    )
    return collector, sampler


def _collect(collector, step=0, groups=8, factor=0.0):
    return collector.collect(
        step, groups=groups, params=PARAMS, overlong_buffer=10, overlong_factor=factor
    )


@pytest.mark.failure(20)
@pytest.mark.failure(21)
def test_batches_are_exactly_full_of_whole_informative_groups():
    collector, _ = _collector(lambda p: 0.3)
    seen = []
    for step in range(6):
        groups, tally = _collect(collector, step)
        assert len(groups) == 8
        for group in groups:
            assert len(group.completions) == len(group.correct) == 4
            assert group.correct.any() and not group.correct.all()
        seen += groups
        assert tally.sampled >= 8 - tally.carried
    assert len(set(map(id, seen))) == len(seen)  # a carried group is used once


@pytest.mark.failure(17)
@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_data_without_information_is_bounded_counted_and_ends_as_configured(chance):
    collector, sampler = _collector(lambda p: chance)
    for step in range(2):
        groups, tally = _collect(collector, step)
        assert groups == [] and tally.rounds == 6
        assert (tally.solve_all, tally.solve_none)[chance == 0.0] == tally.sampled
    with pytest.raises(Shortfall, match="0 of 8 informative groups after 6 rounds"):
        _collect(collector, 2)
    assert len(sampler.calls) == 18 and max(sampler.calls) <= 16
    stopping, _ = _collector(lambda p: chance, on_shortfall="stop")
    with pytest.raises(Shortfall, match="on_shortfall='stop'"):
        _collect(stopping)


def test_a_shortfall_keeps_its_groups_for_the_next_step():
    # Only problems below 4 are informative: 4 of 64.
    collector, _ = _collector(lambda p: 0.5 if p < 4 else 0.0, max_rounds=2)
    first, _ = _collect(collector)
    kept = len(collector.state()["left"])
    assert first == [] and kept > 0
    partial, _ = _collector(
        lambda p: 0.5 if p < 4 else 0.0, max_rounds=2, on_shortfall="partial"
    )
    groups, _ = _collect(partial)
    assert len(groups) == kept


def test_surplus_groups_age_out():
    collector, _ = _collector(lambda p: 0.5, max_age=1)
    _collect(collector, 0, groups=3)
    left = len(collector.state()["left"])
    _, tally = _collect(collector, 5, groups=3)
    assert tally.aged_out == left


@pytest.mark.failure(25)
def test_the_overlong_penalty_reaches_the_reward_and_not_the_filter():
    np.testing.assert_allclose(
        overlong_penalty(
            np.array([10, 12, 15, 20, 99]), max_tokens=20, buffer=10, factor=0.5
        ),
        [0, -0.1, -0.25, -0.5, -0.5],
        rtol=1e-6,
    )
    collector, _ = _collector(lambda p: 0.5)
    groups, _ = _collect(collector, factor=0.5)
    for group in groups:
        for completion, correct, reward in zip(
            group.completions, group.correct, group.rewards, strict=True
        ):
            over = max(0, len(completion.token_ids) - 10) / 10
            assert reward == pytest.approx((1 if correct else -1) - 0.5 * over)


@pytest.mark.failure(30)
def test_a_restored_collector_continues_with_the_very_same_groups():
    a, _ = _collector(lambda p: 0.4)
    _collect(a, 0)
    b, _ = _collector(lambda p: 0.4)
    b.restore(a.state())
    b._problems.restore(a._problems.state())
    b._seeds.count = a._seeds.count
    left, right = _collect(a, 1)[0], _collect(b, 1)[0]
    for x, y in zip(left, right, strict=True):
        assert x.problem == y.problem and x.born == y.born
        np.testing.assert_array_equal(x.rewards, y.rewards)
        for c, d in zip(x.completions, y.completions, strict=True):
            np.testing.assert_array_equal(c.token_ids, d.token_ids)
            assert c.token_ids.dtype == d.token_ids.dtype
