"""Simulated servers against what a hand can reckon."""

import numpy as np
import pytest

from tools.plan.servers import Ended, Sampling, Servers


def _servers(*, prompt=0.0, **figures):
    plain = dict(fixed=1.0, position=0.0, slots=2, samplers=1, prefill=0.0, how="given")
    return Servers(Sampling(**plain | figures), prompt=prompt)


def _ends(servers, tokens):
    """When each completion is there, by its key."""
    servers.ask(0, range(len(tokens)), tokens)
    return {servers.next().key: servers.now for _ in tokens}


def test_slots_are_refilled():
    """Two slots, completions of 5, 2, 2 and 4: the second slot has 2, 2 and 4 in turn,
    so that after five steps one is live."""
    servers = _servers()
    assert _ends(servers, [5, 2, 2, 4]) == {0: 5, 1: 2, 2: 4, 3: 8}
    assert servers.drawn == 13 and servers.busy == 8
    assert servers.filled == (2 * 5 + 3) / 2


def test_a_step_reads_the_weights_and_what_is_in_the_cache():
    """Prompt of 10 and 4 tokens: 10 + 11 + 12 + 13 positions, twice where two go on."""
    alone = _ends(_servers(position=0.1, prompt=10.0), [4])
    assert alone[0] == pytest.approx(4 + 4.6)
    both = _ends(_servers(position=0.1, prompt=10.0), [4, 4])
    assert both == {0: pytest.approx(4 + 9.2), 1: pytest.approx(4 + 9.2)}


def test_a_prompt_is_read_once_by_each_server():
    servers = _servers(slots=1, samplers=2, prefill=0.5, prompt=10.0)
    # Both read it for the first two, and neither for the others.
    assert _ends(servers, [1, 2, 3, 1]) == {0: 6, 1: 7, 2: 9, 3: 8}


def test_the_least_busy_server_takes_what_waits():
    servers = _servers(slots=3, samplers=2)
    assert _ends(servers, [9, 1, 9, 1, 4, 4]) == dict(
        zip(range(6), [9, 1, 9, 1, 4, 4], strict=True)
    )
    assert servers.busy == (9 + 4) / 2


def test_a_publish_interrupts_and_the_rest_is_drawn_by_the_new_version():
    """4 of 10 tokens, 3 seconds of pause, 5 + 4 positions read anew, the other 6."""
    servers = _servers(prefill=0.5, prompt=5.0)
    servers.publish(7, at=2.5 + 4, pause=3.0)
    servers.ask(0, [0], [10])
    assert servers.next() == Ended(0, ((0, 4), (7, 6)))
    assert servers.now == 2.5 + 4 + 3 + 4.5 + 6
    # What begins later knows nothing of the old one.
    servers.ask(0, [1], [2])
    assert servers.next() == Ended(1, ((7, 2),))


def test_a_step_under_way_at_a_publish_is_finished():
    servers = _servers()
    servers.publish(1, at=3.4, pause=1.0)
    servers.ask(0, [0], [5])
    assert servers.next() == Ended(0, ((0, 4), (1, 1)))
    assert servers.now == 6


def test_who_rests_goes_on_where_he_was():
    servers = _servers(slots=2)
    servers.ask(0, [0, 1], [2, 6])
    assert servers.next().key == 0
    servers.publish(1, at=5.0, pause=1.0)
    servers.rest(20.0)
    assert servers.next() == Ended(1, ((0, 2), (1, 4)))
    assert servers.now == 24 and servers.busy == 6


def test_what_waits_for_a_slot_is_taken_back_and_what_has_one_goes_on():
    servers = _servers(slots=2)
    servers.ask(0, [0, 1, 2, 3], [3, 8, 8, 2])
    assert servers.next() == Ended(0, ((0, 3),))
    # The third waits still: it takes the slot that is free only when time goes on.
    assert servers.withdraw() == {2, 3}
    servers.ask(0, [4], [2])
    assert servers.next() == Ended(4, ((0, 2),)) and servers.now == 5
    assert servers.next() == Ended(1, ((0, 8),)) and servers.now == 8
    assert servers.drawn == 3 + 8 + 2 and servers.withdraw() == set()


def test_every_token_is_drawn_once_whatever_interrupts():
    random = np.random.default_rng(0)
    tokens = random.integers(1, 200, 400)
    servers = _servers(
        fixed=0.01, position=1e-5, slots=16, samplers=3, prefill=1e-5, prompt=50.0
    )
    for version, at in enumerate(np.sort(random.uniform(0, 20, 12)), start=1):
        servers.publish(version, at=float(at), pause=0.3)
    servers.ask(0, range(400), tokens.tolist())
    last = 0.0
    for _ in tokens:
        ended = servers.next()
        versions, counts = zip(*ended.tokens, strict=True)
        assert sum(counts) == tokens[ended.key]
        assert list(versions) == sorted(set(versions)) and min(counts) > 0
        assert servers.now >= last
        last = servers.now
    assert servers.drawn == tokens.sum()
    assert servers.filled < servers.busy < servers.now
