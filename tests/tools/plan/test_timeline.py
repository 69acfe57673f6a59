"""Simulated steps: where the answer is known, and what holds whatever is simulated."""

import collections
import dataclasses
import pathlib

import numpy as np
import pytest

from configs import base, quickstart
from tools.plan import timeline
from tools.plan.lengths import Lengths
from tools.plan.pace import Figures, Pace
from tools.plan.servers import Sampling
from tools.plan.timeline import World, simulate, solve_rates

TAIL = np.clip(np.random.default_rng(5).lognormal(4, 0.8, 500), 1, 400).astype(int)


def _config(*, filter=False, max_age=1, carry=False, **sampling):
    c = base.get_config()
    c.batch.prompts_per_step = c.batch.prompts_per_update = 8
    c.rollout.group_size = 4
    c.dynamic_sampling.filter = filter
    c.dynamic_sampling.max_rounds = 30
    c.dynamic_sampling.max_age, c.dynamic_sampling.carry = max_age, carry
    c.sampling.update(sampling)
    return c.lock()


def _figures(*, lengths=(100,), slots=16, **pace):
    """Eight groups of four are 32 completions, which two servers have room for."""
    plain = dict(
        score=0.0, update=30.0, write=3.0, load=4.0, switch=1.0, verdict=0.0,
        accepted=1.0, problems=100, steps=8,
    )  # fmt: skip
    sampling = Sampling(
        fixed=0.5, position=0.0, slots=slots, samplers=2, prefill=0.0, how="given"
    )
    drawn = Lengths(source="here", completions=np.array(lengths), accepted=1.0)
    pace = Pace(**plain | pace)
    return Figures(lengths=drawn, sampling=sampling, pace=pace, sources={})


@pytest.mark.parametrize("update", [30.0, 80.0])
def test_constant_lengths_by_hand(update):
    """100 tokens of 0.5 s each are 50 s, a publish 8 s, of which 1 s is the switch."""
    found = {
        schedule: simulate(_config(), _figures(update=update), schedule=schedule)
        for schedule in ("sync", "one_step_off", "async")
    }
    seconds = {schedule: t.seconds for schedule, t in found.items()}
    assert seconds == {
        "sync": pytest.approx(50 + update + 8),
        "one_step_off": pytest.approx(max(50, update) + 8),
        # The slower side, and the switch is the sampler's too.
        "async": pytest.approx(max(50 + 1, update + 8)),
    }
    for schedule, t in found.items():
        assert t.trainer_idle == pytest.approx(1 - update / seconds[schedule])
        assert t.servers_idle == pytest.approx(1 - 50 / seconds[schedule])
        assert t.slots_filled == pytest.approx(50 / seconds[schedule])
        assert t.trained == 1 and t.worth == 8
    assert found["sync"].staleness == {0: 1.0}
    assert found["one_step_off"].staleness == {1: 1.0}


def test_scores_and_verdicts_take_their_time():
    figures = _figures(score=5.0, verdict=0.25)
    assert simulate(_config(), figures, schedule="sync").seconds == pytest.approx(
        50 + 32 * 0.25 + 5 + 30 + 8
    )


def test_what_servers_load_while_they_stand_holds_up_async_alone():
    staged, standing = (_figures(update=10.0, stands=stands) for stands in (0, 1))
    gain = {
        schedule: simulate(_config(), standing, schedule=schedule).seconds
        - simulate(_config(), staged, schedule=schedule).seconds
        for schedule in ("sync", "one_step_off", "async")
    }
    # A publish takes as long either way; the 4 s of loading interrupt what is drawn.
    assert gain == {
        "sync": pytest.approx(0),
        "one_step_off": pytest.approx(0),
        "async": pytest.approx(4),
    }


@pytest.mark.parametrize("max_staleness", [1, 3])
def test_a_batch_begins_as_far_ahead_as_the_schedule_lets_it(max_staleness):
    """As `tests/rl/batches/test_schedule.py` finds it of the run's own: the sampler is
    always ready first, and what it draws is as old as it may be."""
    config = _config().copy_and_resolve_references()
    config.rollout.max_staleness = max_staleness
    figures = _figures(lengths=[1], update=100.0, steps=12)
    found = simulate(config.lock(), figures, schedule="async")
    assert found.staleness == {max_staleness: 1.0}
    assert found.seconds == pytest.approx(100 + 8)


def test_a_round_waits_for_its_longest_and_carried_batches_do_not():
    """Where no group grows too old, both train on all that they draw, and an update's
    switch is all that holds up servers whose slots are always taken."""
    figures = _figures(lengths=TAIL, slots=8, update=1.0, steps=60)
    whole, carried = (
        simulate(_config(max_age=9, carry=carry), figures, schedule="async")
        for carry in (False, True)
    )
    assert whole.trained == 1 and carried.trained == pytest.approx(1, abs=0.02)
    assert whole.slots_filled < 0.7
    assert carried.slots_filled == pytest.approx(1 - 1 / carried.seconds, abs=0.005)
    assert carried.seconds < 0.75 * whole.seconds
    assert carried.off_policy > 0.5


def test_rounds_are_as_many_as_groups_that_teach_nothing_make_necessary():
    figures = _figures(accepted=0.5, steps=40, problems=2000)
    found = simulate(_config(filter=True), figures, schedule="sync")
    assert found.trained == pytest.approx(0.5, abs=0.05)
    # Two rounds and more, of 50 s each; more than 16 groups do not fit in one wave.
    assert 38 + 2 * 50 < found.seconds < 38 + 3 * 50


def test_draws_that_teach_spare_tokens_once_problems_are_known():
    figures = _figures(accepted=0.4, steps=40, problems=40)
    uniform, signal = (
        simulate(_config(filter=True, **how), figures, schedule="sync")
        for how in ({}, {"policy": "signal"})
    )
    assert uniform.trained == pytest.approx(0.4, abs=0.06)
    assert signal.trained > 1.5 * uniform.trained
    assert uniform.worth == signal.worth == 8


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("schedule", ["sync", "one_step_off", "async"])
def test_every_token_is_trained_on_dropped_or_in_flight(schedule, carry, monkeypatch):
    seen = _Seen()
    monkeypatch.setattr(timeline, "World", seen.world)
    config = _config(filter=True, carry=carry)
    figures = _figures(lengths=TAIL, slots=8, accepted=0.5, steps=16, problems=200)
    found = simulate(config, figures, schedule=schedule)
    world = seen.worlds[0]
    ended = {key: sum(n for _, n in spans) for key, spans in enumerate(world.ended)}
    in_flight = sum(
        s._steps - begin for s in world.servers._servers for _, _, begin in s.live
    )
    assert world.servers.drawn == sum(ended.values()) + in_flight
    assert (in_flight > 0) == carry
    # Nothing is trained on twice or before it is there, and groups are whole.
    counts = collections.Counter(seen.trained)
    assert set(counts.values()) == {1} and len(counts) == 16 * 8 * 4
    assert all(ended[key] for key in counts)
    assert sum(seen.stale.values()) == sum(ended[key] for key in counts)
    # Surplus groups wait for `max_age` steps.
    ahead = {"sync": 0, "one_step_off": 1, "async": config.rollout.max_staleness}
    oldest = ahead[schedule] + config.dynamic_sampling.max_age
    assert 0 <= min(seen.stale) and max(seen.stale) <= oldest
    for spans in world.ended:
        versions = [version for version, _ in spans]
        assert versions == sorted(set(versions))
        if schedule != "async" and not carry:
            assert len(versions) == 1
    assert found.trained < 0.75 and sum(found.staleness.values()) == pytest.approx(1)


class _Seen:
    """Notes what a simulation trains on."""

    def __init__(self):
        self.worlds, self.trained = [], []
        self.stale = collections.Counter()

    def world(self, *args):
        seen = self

        class Watched(World):
            def trained_on(self, groups, step):
                worth, stale = super().trained_on(groups, step)
                seen.stale += stale
                seen.trained += [
                    int(c.token_ids[1]) for g in groups for c in g.completions
                ]
                return worth, stale

        world = Watched(*args)
        self.worlds.append(world)
        return world


@pytest.mark.parametrize("carry", [False, True])
def test_a_seed_says_all(carry):
    figures = _figures(lengths=TAIL, accepted=0.5, problems=200)
    config = _config(filter=True, policy="signal", carry=carry)
    once, again = (simulate(config, figures, schedule="async") for _ in range(2))
    assert once == again
    other = config.copy_and_resolve_references()
    other.seed = 1
    assert simulate(other, figures, schedule="async") != once


def test_problems_have_rates_by_which_so_many_groups_teach():
    for share in (0.1, 0.5, 0.9):
        rates = solve_rates(share, 50_000, group=16)
        teaches = 1 - rates**16 - (1 - rates) ** 16
        assert teaches.mean() == pytest.approx(share, abs=0.01)
        assert (rates == 0).mean() == pytest.approx((rates == 1).mean(), abs=0.01)
    assert solve_rates(1.0, 50_000, group=16).min() >= 0.1


def test_too_few_groups_that_teach_are_one_line():
    figures = _figures(accepted=0.01, problems=300)
    with pytest.raises(ValueError, match="accepted=0.01: .* informative groups"):
        simulate(_config(filter=True), figures, schedule="sync")


def test_a_real_runs_second_half_is_foretold_by_the_speed_of_its_first():
    """The quickstart's steps, on two CPU cores (the README's run again, seed 0): what a
    round and a completion took is fitted to one half. In the other fewer groups teach:
    rounds, completions and seconds of a step follow from that share."""
    path = pathlib.Path(__file__).with_name("quickstart.csv")
    run = np.genfromtxt(path, delimiter=",", names=True, deletechars="")
    known, other = run[: len(run) // 2], run[len(run) // 2 :]
    counts = np.stack([known["sampling/rounds"], known["sampling/completions"]], 1)
    (each_round, each), *_ = np.linalg.lstsq(counts, known["sampling/seconds"])
    assert each_round > 0 and each > 0

    def mean(name):
        return float(other[name].mean())

    tokens = round(mean("length/all_mean"))
    lengths = Lengths(source="run", completions=np.array([tokens]), accepted=1.0)
    # All of a round decode together, by `slots`: of each token a round's share and
    # that of every completion, which is read as one position.
    sampling = Sampling(
        fixed=each_round / tokens, position=each / tokens / lengths.context,
        slots=256, samplers=1, prefill=0.0, how="measured",
    )  # fmt: skip
    pace = Pace(
        score=0.0, load=0.0, switch=0.0, verdict=0.0, write=mean("seconds/publish"),
        update=mean("seconds/step") - mean("seconds/sample") - mean("seconds/publish"),
        accepted=mean("sampling/informative"), problems=2000, steps=32,
    )  # fmt: skip
    figures = Figures(lengths=lengths, sampling=sampling, pace=pace, sources={})
    found = simulate(quickstart.get_config(), figures, schedule="sync")
    assert mean("sampling/informative") < 0.8 * known["sampling/informative"].mean()
    assert found.trained == pytest.approx(32 / mean("sampling/groups"), rel=0.05)
    assert found.sample == pytest.approx(mean("sampling/seconds"), rel=0.1)
    assert found.seconds == pytest.approx(mean("seconds/step"), rel=0.05)


def test_figures_are_given_by_name():
    sources = dict.fromkeys(("update", "slots"), "computed")
    figures = dataclasses.replace(_figures(), sources=sources)
    given = figures.given({"update": 12.5, "slots": 32})
    assert given.rows() == {
        "update": {"value": 12.5, "source": "given"},
        "slots": {"value": 32, "source": "given"},
    }
    assert given.pace.update == 12.5 and given.sampling.slots == 32
    with pytest.raises(ValueError, match="--given=nosuch=1: no such .* update, slots"):
        figures.given({"nosuch": 1.0})
    with pytest.raises(ValueError, match="--given=slots=0: from 1 to inf"):
        figures.given({"slots": 0.0})
