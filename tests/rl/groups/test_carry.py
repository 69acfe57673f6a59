"""Groups that a step leaves unfinished and the next one finishes."""

import json

import numpy as np
import pytest

from configs.base import Stage
from rl.reward.verifier import Score
from rl.verifier import Verdict
from rollout.types import Completion, SamplingParams, start_completions
from tests.rl.examples import make_collector, make_problems

PARAMS = SamplingParams(n=4, max_tokens=60, stop_token_ids=(0,))
RIGHT, WRONG = 1, 2


class Slots:
    """A sampler that draws a token for each of its slots in turn, in `time` ticks.

    A third of the problems have a first completion that is long; all others are short.
    """

    def __init__(self, slots=24):
        self.slots, self.version, self.time, self.drawn = slots, 0, 0, 0

    def sample(
        self, prompts, params, *, seed, partial=None, on_finished=None, on_pause=None
    ):
        rng = np.random.default_rng(seed)
        texts = start_completions(prompts, params, partial)
        waiting = [
            (p, s) for p, group in enumerate(texts) for s in range(len(group))
            if group[s].unfinished
        ]  # fmt: skip
        running, lengths = [], {}
        while waiting or running:
            while waiting and len(running) < self.slots:
                p, s = waiting.pop(0)
                long = s == 0 and prompts[p][0] % 3 == 0
                length = 50 if long else int(rng.integers(2, 12))
                lengths[p, s] = max(length, len(texts[p][s].token_ids) + 1)
                running.append((p, s))
            self.time += 1
            self.drawn += len(running)
            for p, s in list(running):
                start = texts[p][s]
                ended = len(start.token_ids) + 1 == lengths[p, s]
                right = prompts[p][0] % 4 and (s == 0 or rng.random() < 0.2)
                token = Completion(
                    np.array([RIGHT if right else WRONG], np.int32),
                    np.zeros(1, np.float32),
                    "stop" if ended else "unfinished",
                    np.array([self.version], np.int32),
                )
                texts[p][s] = start.followed_by(token)
                if ended:
                    running.remove((p, s))
                    if on_finished is not None:
                        on_finished(p, s, texts[p][s])
            if on_pause and on_pause():
                break
        return texts


def _reward(texts, problems):
    return [Score.of(Verdict(text == str(RIGHT), None, "last")) for text in texts]


def _collector(sampler, *stages, **settings):
    how = dict(reward=_reward, decode=lambda ids: str(ids[-1]), sampling_params=PARAMS)
    how |= dict(stages=stages, max_age=1, carry=True) | settings
    return make_collector(sampler.sample, make_problems([None] * 64), **how)


def _run(collector, sampler, steps):
    seen = []
    for step in range(steps):
        sampler.version = step
        groups, stats = collector.collect(step)
        seen.append((groups, stats))
    return seen


def _tokens(groups):
    return sum(len(c.token_ids) for group in groups for c in group.completions)


@pytest.mark.parametrize("max_age,size", [(0, 8), (2, 3)])
def test_no_token_is_older_than_said_and_none_is_lost_or_used_twice(max_age, size):
    sampler = Slots()
    settings = dict(max_age=max_age, prompts_per_step=size, filter=False)
    collector = _collector(sampler, **settings)
    steps = _run(collector, sampler, 30)
    used = [group for groups, _ in steps for group in groups]
    assert len(set(map(id, used))) == len(used) == 30 * size
    stale = []
    for step, (groups, stats) in enumerate(steps):
        for group in groups:
            assert len(group.completions) == 4
            for c in group.completions:
                assert not c.unfinished and c.versions.tolist() == sorted(c.versions)
                assert step - max_age - 1 <= group.created_step <= c.versions[0]
                assert group.created_step <= c.versions[-1] <= step
                stale += (step - c.versions).tolist()
        assert stats.aged_out == 0
    assert max(stale) == max_age + 1
    left = _tokens(collector._left) + _tokens(collector._partial)
    assert _tokens(used) + left == sampler.drawn


@pytest.mark.parametrize("max_age", [0, 1])
def test_long_answers_are_trained_on_as_often_as_short_ones(max_age):
    """Dropped where unfinished, or left over because they end last, they are rarer: in
    the order in which they end, 0.30 of what is kept is of the third that is long."""
    sampler = Slots()
    collector = _collector(sampler, max_age=max_age, filter=max_age == 0)
    steps = _run(collector, sampler, 150)
    groups = sum((groups for groups, _ in steps[4:]), [])
    thirds = [int(group.problem.id[1:]) % 3 == 0 for group in groups]
    assert np.mean(thirds) == pytest.approx(22 / 64, abs=0.02)


def test_a_step_does_not_wait_for_the_longest():
    whole, carried = Slots(), Slots()
    _run(_collector(whole, carry=False), whole, 20)
    _run(_collector(carried), carried, 20)
    assert carried.time < 0.8 * whole.time
    assert carried.drawn < 1.1 * whole.drawn


def test_a_run_goes_on_bit_for_bit_from_what_is_saved_between_steps():
    sampler = Slots()
    steps = _run(_collector(sampler), sampler, 8)
    for (_, before), (_, after) in zip(steps, steps[1:], strict=False):
        assert 0 < after.partial <= before.unfinished
    through = [_shown(g) for g, _ in steps]
    sampler = Slots()
    collector = _collector(sampler)
    _run(collector, sampler, 4)
    state = json.loads(json.dumps(collector.state()))
    assert any(g["completions"][0]["token_ids"]["data"] for g in state["partial"])
    resumed = _collector(sampler)
    resumed.restore(state)
    for step in range(4, 8):
        sampler.version = step
        assert _shown(resumed.collect(step)[0]) == through[step]


def _shown(groups):
    return [
        (g.problem.id, g.created_step, [(c.token_ids.tolist(), c.versions.tolist())
         for c in g.completions], g.correct.tolist()) for g in groups
    ]  # fmt: skip


def test_what_is_begun_ends_with_its_stage_where_the_next_has_other_lengths():
    sampler = Slots()
    stages = (Stage(name="short", steps=2), Stage(name="wide", group_size=3))
    collector = _collector(sampler, *stages)
    seen = _run(collector, sampler, 4)
    sizes = [{len(group.completions) for group in groups} for groups, _ in seen]
    assert sizes[0] == sizes[1] == {4} and sizes[3] == {3}
    assert {len(group.completions) for group in collector._partial} == {3}


@pytest.mark.parametrize("how", [{}, {"carry": False, "prompts_per_step": 3}])
def test_nothing_drawn_at_another_temperature_meets_an_update(how):
    stages = (Stage(name="cool", steps=2), Stage(name="hot", temperature=1.5))
    asked = []

    class Thermometer(Slots):
        def sample(self, prompts, params, **how):
            asked.append(params.temperature)
            return super().sample(prompts, params, **how)

    sampler = Thermometer()
    collector = _collector(sampler, *stages, **how)
    _run(collector, sampler, 2)
    waiting = len(collector._left) + sum(g.tokens > 0 for g in collector._partial)
    assert waiting > 0 and set(asked) == {PARAMS.temperature}
    # A restart between the stages knows what its groups were drawn at.
    resumed = _collector(sampler, *stages, **how)
    resumed.restore(collector.state())
    asked.clear()
    for one in (collector, resumed):
        groups, stats = one.collect(2)
        assert stats.aged_out == waiting and stats.carried == stats.partial == 0
        assert {group.created_step for group in groups} == {2}
    assert set(asked) == {1.5}
    # From there on surplus groups are carried as within a stage.
    assert collector.collect(3)[1].aged_out == 0
