"""Groups in two parts: expectations by counting every case, not by simulation."""

import collections
import itertools
import json

import numpy as np
import pytest

from rl.batches.advantages import leave_one_out, maxrl, mean, std
from rl.batches.collect import Collector
from rl.batches.draws import Draws
from rl.batches.group_state import group_state, restore_group
from rl.batches.groups import token_weights
from rl.batches.judge import Judge
from rl.batches.parts import missed, stands_for
from rl.batches.rates import Rate
from rl.problems.curriculum import Curriculum, Stage
from rl.reward.score import Score
from rl.verifier import Verdict
from rollout.types import Completion, SamplingParams
from tests.rl.examples import make_problem, of_each

G, FIRST = 5, 2
# A bandit's arms: a short right answer, a long one that earns less, and a wrong one.
REWARDS, RIGHT, LENGTHS = (1.0, 0.6, -1.0), (True, True, False), (1, 3, 2)
POLICIES = np.array([[0.1, 0.05, 0.85], [0.3, 0.3, 0.4], [0.6, 0.35, 0.05]])


class Script:
    """A sampler that gives a group's completions one after the other."""

    def __init__(self, arms):
        self._arms = list(arms)

    def sample(self, prompts, params, *, seed, on_finished=None):
        assert len(prompts) == 1
        now, self._arms = self._arms[: params.n], self._arms[params.n :]
        return [[_completion(arm) for arm in now]]


def _completion(arm):
    n = LENGTHS[arm]
    zeros = np.zeros(n, np.float32)
    return Completion(np.full(n, arm, np.int32), zeros, "stop", np.zeros(n, np.int32))


def _score(texts, problems):
    return [
        Score(
            reward=REWARDS[int(text[0])],
            verdict=Verdict(RIGHT[int(text[0])], None, "arm"),
            components={},
        )
        for text in texts
    ]


def _collected(arms, ends, *, first=FIRST):
    """What the collector keeps of a group, and its tally."""
    draws = Draws(
        Curriculum((Stage(name="all"),), [make_problem()], seed=0),
        [make_problem()],
        policy="uniform", explore=0.05, power=1.0, retire_at=0.9, half_life=50.0,
    )  # fmt: skip
    draws.ends = lambda draw, judged, rest: ends
    script = Script(arms)
    judge = Judge(
        reward=of_each(_score), decode=lambda ids: "".join(map(str, ids)),
        shuffle=False, overlong_buffer=1, overlong_factor=0.0,
    )  # fmt: skip
    collector = Collector(
        draws=draws, sample=script.sample, judge=judge,
        encode=lambda problem: np.array([7], np.int32),
        sampling=SamplingParams(n=len(arms), max_tokens=9, stop_token_ids=(0,)),
        seed=0, prompts_per_step=1, filter=True, filter_on="correct", max_rounds=1,
        max_age=1, on_shortfall="skip", max_shortfalls=3, carry=False, oversample=2.0,
        first=first,
    )  # fmt: skip
    groups, tally = collector.collect(0)
    return groups, tally


def _gradients(group, advantages, policy):
    """Of the sum over completions of advantage times log-probability, by logits."""
    arms = [c.token_ids[0] for c in group.completions]
    return advantages @ (np.eye(3)[arms] - policy)


def _sums(ends, *, first, weighted=True):
    """By policy, over every case: the gradients' sum by advantage, tokens, completions.

    Each is an exact expectation, of a group that is begun.
    """
    sums = [collections.defaultdict(float) for _ in POLICIES]
    for arms in itertools.product(range(3), repeat=G):
        groups, tally = _collected(arms, ends, first=first)
        for policy, total in zip(POLICIES, sums, strict=True):
            chance = float(np.prod(policy[list(arms)]))
            total["completions"] += chance * tally.completions
            for group in groups:
                counts = chance * (group.weight if weighted else 1.0)
                total["kept"] += counts
                lengths = [len(c.token_ids) for c in group.completions]
                total["tokens"] += counts * sum(lengths)
                rewards = group.rewards.astype(float)
                for name, values in {
                    "std": std(rewards),
                    "mean": mean(rewards),
                    "leave_one_out": leave_one_out(rewards),
                    "maxrl": maxrl(group.correct),
                }.items():
                    total[name] += counts * _gradients(group, values, policy)
    return sums


@pytest.fixture(scope="module")
def of_whole():
    return _sums((False, False), first=0)


@pytest.mark.parametrize("ends", list(itertools.product((False, True), repeat=2)))
def test_the_expected_gradient_is_that_of_whole_groups(of_whole, ends):
    for whole, parts in zip(of_whole, _sums(ends, first=FIRST), strict=True):
        for name in ("std", "mean", "leave_one_out", "maxrl", "kept", "tokens"):
            np.testing.assert_allclose(parts[name], whole[name], rtol=1e-12, atol=1e-14)
        assert np.abs(whole["std"]).max() > 0.01
        assert whole["completions"] == pytest.approx(G)
        assert (parts["completions"] < G - 0.001) == any(ends)


def test_without_weights_it_points_elsewhere_and_favours_middling_problems(of_whole):
    unweighted = _sums((True, True), first=FIRST, weighted=False)
    kept = [u["kept"] / w["kept"] for u, w in zip(unweighted, of_whole, strict=True)]
    # (1 - p^2 - q^2) / (1 - p^5 - q^5) of a hard, a middling and an easy problem.
    np.testing.assert_allclose(kept, [0.4585, 0.5263, 0.4199], atol=1e-4)
    # Each problem has logits of its own.
    both = [np.concatenate([s["std"] for s in sums]) for sums in (unweighted, of_whole)]
    cosine = both[0] @ both[1] / np.prod([np.linalg.norm(g) for g in both])
    assert cosine < 0.999


def test_weights_are_one_over_the_chance_that_orders_leave():
    def weight(right, wrong, ends, first=4):
        correct = np.array([True] * right + [False] * wrong)
        return stands_for(correct, first=first, ends=ends)

    both = (True, True)
    assert weight(1, 15, both) == 4  # the right one is among the first 4 of 16
    assert weight(15, 1, both) == 4
    assert weight(2, 14, both) == pytest.approx(1820 / (1820 - 1001))
    assert weight(8, 8, both) == pytest.approx(1820 / (1820 - 140))
    assert weight(1, 15, (False, True)) == 1  # goes on where all are wrong
    assert weight(8, 8, (True, False)) == pytest.approx(1820 / (1820 - 70))
    assert weight(3, 5, (False, False)) == 1
    # What has no verdict is not counted: 3 of the first part have one, 7 of all.
    assert weight(1, 6, both, first=3) == pytest.approx(7 / 3)


def test_what_is_missed_is_the_chance_of_more_times_its_weight():
    # Rates alike: each number of others among 2 is as likely; of 4, with first 2.
    told = missed(Rate(1.0, 1.0), 2, 2)
    assert told == pytest.approx((1 / (1 - 3 / 6) + 1 / (1 - 1 / 6)) / 3)
    assert missed(Rate(1e-9, 5.0), 4, 12) == pytest.approx(0, abs=1e-7)


def test_a_group_counts_by_its_weight_in_every_average():
    arms = (0, 2, 2, 2, 2)
    (rare,), _ = _collected(arms, (True, True))
    (plain,), _ = _collected((0, 2, 0, 2, 0), (False, False))
    assert (rare.weight, plain.weight) == (2.5, 1.0)

    def weights(mode):
        return token_weights([rare, plain], aggregation=mode, constant=4)

    a, b = weights("token")  # 9 tokens, 2.5 times, and 7
    np.testing.assert_allclose(a, 2.5 / 29.5)
    np.testing.assert_allclose(b, 1 / 29.5)
    a, b = weights("group")
    np.testing.assert_allclose(a, 2.5 / (3.5 * 9))
    np.testing.assert_allclose(b, 1 / (3.5 * 7))
    a, b = weights("sequence")
    np.testing.assert_allclose(a, 2.5 / (17.5 * np.array([1, 2, 2, 2, 2])))
    np.testing.assert_allclose(b, 1 / (17.5 * np.array([1, 2, 1, 2, 1])))
    a, b = weights("constant")
    np.testing.assert_allclose([a, b], np.outer([2.5, 1], [1 / (17.5 * 4)] * 5))


def test_accuracy_is_of_first_parts_and_all_right_is_all_that_was_drawn():
    """How much is drawn depends on what is right: all completions would be biased."""
    for arms, ends, told in (
        ((0, 1, 2, 2, 2), (False, False), (5, 1.0, 0.0)),
        ((0, 2, 0, 0, 0), (True, True), (5, 0.5, 0.0)),
        ((0, 1, 2, 2, 2), (True, True), (2, 1.0, 1.0)),
        ((0, 1, 1, 1, 0), (False, False), (5, 1.0, 1.0)),
        ((2, 2, 0, 0, 0), (True, False), (2, 0.0, 0.0)),
    ):
        _, tally = _collected(arms, ends)
        assert (tally.completions, tally.accuracy, tally.solve_all_rate) == told


def test_the_bias_of_a_batchs_average_falls_with_its_groups():
    """Of weighted groups over weights, as of gradients over tokens in whole groups."""
    cases = []
    for arms in itertools.product(range(3), repeat=G):
        for group in _collected(arms, (True, True))[0]:
            chance = float(np.prod(POLICIES[0][list(arms)]))
            value = _gradients(group, std(group.rewards.astype(float)), POLICIES[0])[0]
            cases.append((chance, group.weight, value))
    chance, weight, value = map(np.array, zip(*cases, strict=True))
    chance /= chance.sum()
    exact = (chance * weight * value).sum() / (chance * weight).sum()

    alike = collections.defaultdict(float)
    for p, w, v in zip(chance, weight, value.round(12), strict=True):
        alike[w, v] += p
    chance = np.array(list(alike.values()))
    weight, value = np.array(list(alike)).T

    def expected(n):
        """Over every batch of `n` groups."""
        grids = [np.meshgrid(*[x] * n, indexing="ij") for x in (chance, weight, value)]
        p, w, v = (np.stack([axis.ravel() for axis in grid]) for grid in grids)
        return (p.prod(0) * (w * v).sum(0) / w.sum(0)).sum()

    biases = [abs(expected(n) - exact) for n in (1, 2, 3)]
    assert biases[0] > 1.7 * biases[1] > 0
    assert biases[0] > 2.5 * biases[2] > 0
    assert biases[0] < 0.1 * abs(exact)


def test_what_was_left_over_keeps_its_weight_in_a_checkpoint():
    (rare,), _ = _collected((0, 2, 2, 2, 2), (True, True))
    state = json.loads(json.dumps(group_state(rare)))
    assert restore_group(state).weight == 2.5
    del state["weight"]  # of a checkpoint from before there were weights
    assert restore_group(state).weight == 1.0
