"""Dynamic sampling: batches exactly full, rounds bounded, nothing lost or split."""

import json

import numpy as np
import pytest

from configs import base
from rl.groups.collect import Shortfall, overlong_penalty
from rl.problems.arithmetic import make_tokenizer
from rl.reward.verifier import Score
from rl.verifier import Verdict
from rollout.types import Completion, SamplingParams
from tests.rl.examples import make_collector, make_problem, make_segments, pack

PARAMS = SamplingParams(n=4, max_tokens=20, stop_token_ids=(0,))


def _completion(ids, version=0):
    ids = np.array(ids, np.int32)
    zeros, versions = np.zeros(len(ids), np.float32), np.full_like(ids, version)
    return Completion(ids, zeros, "stop", versions)


class Coins:
    """A sampler whose completions are right by a seeded coin of each problem's own."""

    def __init__(self, chance):
        self._chance, self.calls, self.asked = chance, [], []
        self.version = 0

    def sample(self, prompts, params, *, seed, on_finished=None):
        rng = np.random.default_rng(seed)
        self.calls.append(len(prompts))
        self.asked += prompts
        groups = []
        for p, prompt in enumerate(prompts):
            group = []
            for s in range(params.n):
                right = rng.random() < self._chance(prompt[0])
                ids = [1 if right else 2] * rng.integers(1, 20)
                group.append(_completion(ids, self.version))
                if on_finished:
                    on_finished(p, s, group[-1])
            groups.append(group)
        return groups


def _verdict(correct):
    return Verdict(correct, None, "reward")


def _reward(texts, problems):
    return [Score.of(_verdict(text.startswith("1"))) for text in texts]


def _digits(texts, problems):
    """Right where a coin's first token, 1 or 2, is the first."""
    return [Score.of(_verdict(text[0] == texts[0][0])) for text in texts]


def _collector(
    chance, *, reward=_reward, decode=lambda ids: "".join(map(str, ids)), **settings
):
    sampler = Coins(chance)
    problems = [make_problem(i) for i in range(64)]
    collector = make_collector(
        sampler.sample, problems, reward=reward, decode=decode, sampling_params=PARAMS,
        **settings,
    )  # fmt: skip
    return collector, sampler


@pytest.mark.failure(20)
@pytest.mark.failure(21)
def test_batches_are_exactly_full_of_whole_informative_groups():
    collector, _ = _collector(lambda p: 0.3)
    seen = []
    for step in range(6):
        groups, stats = collector.collect(step)
        assert len(groups) == 8
        for group in groups:
            assert len(group.completions) == len(group.correct) == 4
            assert group.correct.any() and not group.correct.all()
        seen += groups
        assert stats.groups >= 8 - stats.carried
    assert len(set(map(id, seen))) == len(seen)  # a carried group is used once


@pytest.mark.failure(29)
def test_ids_are_trained_on_as_they_were_drawn():
    """Decoding and encoding again would turn the letters of a word into one token."""
    tokenizer = make_tokenizer()
    letters = tokenizer.convert_tokens_to_ids(list("boxed"))
    text = tokenizer.decode(letters)
    assert text == "boxed" and len(tokenizer.encode(text)) == 1

    class Spells(Coins):
        def sample(self, prompts, params, *, seed, on_finished=None):
            groups = super().sample(prompts, params, seed=seed)
            return [
                [_completion([c.token_ids[0], *letters]) for c in g] for g in groups
            ]

    collector, _ = _collector(lambda p: 0.5, decode=tokenizer.decode, reward=_digits)
    collector.sample = Spells(lambda p: 0.5).sample
    groups, _ = collector.collect(0)
    micro = pack(make_segments(groups), (16,), 16 * 64)
    trained = np.concatenate([b.token_ids[b.loss_mask] for b in micro]).reshape(-1, 6)
    assert len(trained) == 8 * 4
    assert (trained[:, 1:] == letters).all()


@pytest.mark.failure(17)
@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_data_without_information_is_bounded_counted_and_ends_as_configured(chance):
    collector, sampler = _collector(lambda p: chance)
    for step in range(4):
        groups, stats = collector.collect(step)
        assert groups == [] and stats.rounds == 6
        assert (stats.solve_all, stats.solve_none)[chance == 0.0] == stats.groups
    with pytest.raises(Shortfall, match=r"0 of 8 informative groups \(rounds: 6,"):
        collector.collect(4)
    assert len(sampler.calls) == 30 and max(sampler.calls) <= 16
    stopping, _ = _collector(lambda p: chance, on_shortfall="stop")
    with pytest.raises(Shortfall, match="on_shortfall='stop'"):
        stopping.collect(0)


def test_a_shortfall_keeps_its_groups_for_the_next_step():
    # Only problems below 4 are informative: 4 of 64.
    def chance(problem):
        return 0.5 if problem < 4 else 0.0

    collector, _ = _collector(chance, max_rounds=2)
    first, _ = collector.collect(0)
    kept = len(collector.state()["left"])
    assert first == [] and kept > 0
    partial, _ = _collector(chance, max_rounds=2, on_shortfall="partial")
    groups, _ = partial.collect(0)
    assert len(groups) == kept


def test_a_skipped_step_makes_nothing_older():
    """The policy stays as it is, so what waits is as fresh as it was."""
    collector, sampler = _collector(lambda p: 0.5 if p % 5 == 0 else 0.0, max_rounds=1)
    groups, step = [], 0
    while not groups:
        sampler.version = step
        before = len(collector.state()["left"])
        groups, stats = collector.collect(step)
        assert (stats.carried, stats.aged_out) == (before, 0)
        step += 1
    assert step > 3  # by its number the first one would have gone after two
    # Nor is anything another version's: those before this one had the same weights.
    assert {group.created_step for group in groups} == {step - 1}
    drawn_by = np.concatenate([c.versions for g in groups for c in g.completions])
    assert set(drawn_by) == {step - 1}


@pytest.mark.failure(17)
def test_a_step_that_trains_on_a_part_of_its_batch_is_no_skipped_one():
    informative = 4  # of 64 problems
    collector, _ = _collector(
        lambda p: 0.5 if p < informative else 0.0, max_rounds=2, on_shortfall="partial"
    )
    for step in range(3):
        groups, _ = collector.collect(step)
        assert 0 < len(groups) < 8
    informative = 0
    # Counted with the three before, the first would end the run.
    assert [collector.collect(step)[0] for step in (3, 4, 5, 6)] == [[]] * 4
    with pytest.raises(Shortfall, match="5 consecutive steps had no update: "):
        collector.collect(7)


def test_a_round_asks_for_no_more_prompts_than_it_may():
    # A third of the groups is informative, so that a step needs three times its batch.
    def chance(problem):
        return 0.5 if problem % 3 == 0 else 0.0

    how = dict(max_rounds=1, on_shortfall="partial")
    free, sampler = _collector(chance, **how)
    held, of_held = _collector(chance, **how, oversample=1.0)
    for step in range(4):
        for collector in (free, held):
            groups, _ = collector.collect(step)
            assert 0 < len(groups) <= 8
    assert max(sampler.calls) == 16
    assert of_held.calls == [8, 8, 8, 8]


def test_surplus_groups_age_out():
    collector, _ = _collector(lambda p: 0.5, max_age=1, carry=False, prompts_per_step=3)
    collector.collect(0)
    left = len(collector.state()["left"])
    _, stats = collector.collect(5)
    assert stats.aged_out == left


@pytest.mark.failure(25)
def test_the_overlong_penalty_reaches_the_reward_and_not_the_filter():
    lengths = np.array([10, 12, 15, 20, 99])
    found = overlong_penalty(lengths, max_tokens=20, buffer=10, factor=0.5)
    np.testing.assert_allclose(found, [0, -0.1, -0.25, -0.5, -0.5], rtol=1e-6)
    shaping = base.Reward(overlong_factor=0.5, overlong_buffer=10)
    collector, _ = _collector(lambda p: 0.5, shaping=shaping)
    groups, _ = collector.collect(0)
    for group in groups:
        for completion, correct, reward in zip(
            group.completions, group.correct, group.rewards, strict=True
        ):
            over = max(0, len(completion.token_ids) - 10) / 10
            assert reward == pytest.approx((1 if correct else -1) - 0.5 * over)


@pytest.mark.failure(30)
def test_a_restored_collector_continues_with_the_very_same_groups():
    a, _ = _collector(lambda p: 0.4, reward=_graded, prompts_per_step=3)
    a.collect(0)
    state = json.loads(json.dumps(a.state()))
    b, _ = _collector(lambda p: 0.4, reward=_graded, prompts_per_step=3)
    b.restore(state)
    assert state["left"] and json.loads(json.dumps(b.state())) == state
    assert {name for left in state["left"] for name in left["components"]} == {"long"}
    left, right = a.collect(1)[0], b.collect(1)[0]
    for x, y in zip(left, right, strict=True):
        assert x.problem == y.problem and x.created_step == y.created_step
        np.testing.assert_array_equal(x.rewards, y.rewards)
        for c, d in zip(x.completions, y.completions, strict=True):
            np.testing.assert_array_equal(c.token_ids, d.token_ids)
            assert c.token_ids.dtype == d.token_ids.dtype


@pytest.mark.failure(41)
def test_what_could_not_be_judged_trains_nobody_and_is_counted():
    """Every third text has no verdict: counted wrong it would teach, and be wrong."""
    asked = []

    def reward(texts, problems):
        lost = [len(text) % 3 == 0 for text in texts]
        asked.extend(lost)
        scores = zip(lost, _reward(texts, problems), strict=True)
        return [Score.of(_verdict(None)) if gone else score for gone, score in scores]

    collector, _ = _collector(lambda p: 0.5, reward=reward)
    groups, stats = collector.collect(0)
    assert len(groups) == 8 and stats.unjudged == sum(asked) > 0
    share = stats.metrics()["sampling/unjudged"]
    assert share == sum(asked) / len(asked)
    for group in groups:
        texts = ["".join(map(str, c.token_ids)) for c in group.completions]
        assert 2 <= len(texts) == len(group.correct) == len(group.rewards) <= 4
        assert not any(len(text) % 3 == 0 for text in texts)
        assert not np.isnan(group.rewards).any()
        assert list(group.correct) == [text.startswith("1") for text in texts]


def test_groups_that_nobody_judged_are_not_informative():
    """Neither all right nor all wrong: by these alone they counted as informative."""

    def reward(texts, problems):
        verdicts = [None if problem.id == "p1" else False for problem in problems]
        return list(map(Score.of, map(_verdict, verdicts)))

    collector, _ = _collector(lambda p: 0.0, reward=reward)
    groups, stats = collector.collect(0)
    assert groups == [] and 0 < stats.unjudged < stats.completions
    assert stats.metrics()["sampling/informative"] == 0.0


def _graded(texts, problems):
    """1.0 for a right one, 0.1 for a long wrong one: none is right of problem 0."""
    scores = []
    for text, problem in zip(texts, problems, strict=True):
        right = text.startswith("1") and problem.id != "p0"
        reward = 1.0 if right else 0.1 * (len(text) > 10)
        verdict = Verdict(right, None, "reward")
        components = {"long": float(len(text) > 10)} if len(text) % 2 else {}
        scores.append(Score(reward=reward, verdict=verdict, components=components))
    return scores


@pytest.mark.failure(63)
@pytest.mark.failure(44)
def test_partial_credit_is_not_right_and_the_filter_reads_what_it_is_told():
    """Above 0 is not right: read so, every group with two long ones was dropped."""
    collector, _ = _collector(lambda p: 0.3, reward=_graded)
    groups, stats = collector.collect(0)
    assert len(groups) == 8
    for group in groups:
        assert list(group.correct) == [r == 1 for r in group.raw]
        assert group.correct.any() and not group.correct.all()
    assert any(0.1 in group.raw.round(3) for group in groups)
    assert "component/long" in stats.columns
    # Nothing is ever right: only the graded filter finds something to learn from.
    for on, full in (("correct", 0), ("reward", 8)):
        collector, _ = _collector(lambda p: 0.0, reward=_graded, filter_on=on)
        groups, stats = collector.collect(0)
        assert len(groups) == full and stats.counts["accuracy"][0] == 0
        share = stats.metrics()["sampling/informative"]
        assert (share > 0) == (on == "reward")
        assert all(np.ptp(group.raw) > 0 for group in groups)


def test_the_graded_filter_reads_rewards_before_they_are_shaped():
    shaping = base.Reward(overlong_factor=0.5, overlong_buffer=19)
    collector, _ = _collector(lambda p: 0.0, filter_on="reward", shaping=shaping)
    groups, _ = collector.collect(0)
    assert groups == []  # all wrong, though of unequal lengths


def test_shuffled_scores_stay_together():
    """Components and rules are those of the rewards that they are logged with."""

    def score(texts, problems):
        verdicts = [_verdict(text[0] == "1") for text in texts]
        return [
            Score(reward=float(n), verdict=verdict, components={"length": n})
            for n, verdict in zip(map(len, texts), verdicts, strict=True)
        ]

    shaping = base.Reward(shuffle=True)
    shuffled, _ = _collector(lambda _: 0.5, reward=score, shaping=shaping)
    groups, _ = shuffled.collect(0)
    for group in groups:
        np.testing.assert_array_equal(group.components["length"], group.raw)
    lengths = [len(c.token_ids) for g in groups for c in g.completions]
    assert lengths != [int(r) for g in groups for r in g.raw]
