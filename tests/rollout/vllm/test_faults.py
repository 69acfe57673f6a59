"""Servers and trainers that die or hang, each a real process."""

import contextlib
import os
import pathlib
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rollout.vllm import supervisor
from rollout.vllm.server import ServerFailed
from tests.rollout.vllm import policies

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("no_litter")]


@pytest.fixture(scope="module")
def sampler(policy, tmp_path_factory):
    # The stall must outlast whatever else two cores are busy with. Most completions
    # wait in line, so that a blow never falls behind the last token.
    fleet = dict(stall_seconds=20, max_restarts=2, concurrency=12)
    sampler = policies.make_sampler(policy, tmp_path_factory.mktemp("server"), **fleet)
    sampler.publish(policy.params, 0)
    yield sampler
    sampler.close()


def _tree(sampler):
    """Processes of the server by title."""
    found = {}
    for pid in supervisor.descendants(sampler._fleet.members[0].process.pid):
        title = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        if b"EngineCore" in title:
            found["engine"] = pid
        elif b"api_server" in title:
            found["api"] = pid
    return found


def _strike(sampler, which, blow):
    os.kill(_tree(sampler)[which], blow)


PROMPTS = policies.prompts(12, seed=6)


def _step(sampler, strike=None):
    """48 completions of unequal length; `strike` falls when 8 of them are finished."""
    finished = []

    def note(i, j, completion):
        finished.append((i, j, completion))
        if len(finished) == 8 and strike is not None:
            strike()

    params = policies.draw(250, n=4, stop_token_ids=policies.STOP, ignore_stop=False)
    groups = sampler.sample(PROMPTS, params, seed=11, on_finished=note)
    return groups, finished


@pytest.fixture(scope="module")
def undisturbed(sampler):
    return _step(sampler)[0]


@pytest.mark.failure(10)
@pytest.mark.failure(12)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("which", ["api", "engine"])
def test_a_lost_server_costs_only_time(policy, sampler, undisturbed, which, blow):
    sampler.publish(policy.params, 0)
    before = sampler.metrics()["sampler/restarts"]
    groups, finished = _step(sampler, lambda: _strike(sampler, which, blow))
    assert sampler.metrics()["sampler/restarts"] == before + 1
    # Nothing lost, nothing twice, and the new server serves the current weights.
    assert sorted((i, j) for i, j, _ in finished) == [
        (i, j) for i in range(12) for j in range(4)
    ]
    for i, j, completion in finished:
        assert groups[i][j] is completion
        assert (completion.versions == 0).all()
    assert policies.gaps(policy, PROMPTS, groups).max() < 1e-4
    # Those finished before the blow are kept; those asked for again have their own
    # seeds, and so are the very completions that were lost.
    for ours, theirs in zip(groups, undisturbed, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one.token_ids, other.token_ids)


@pytest.mark.failure(10)
def test_a_server_that_hangs_during_an_update_is_replaced(policy, sampler):
    sampler._sync_seconds = 15
    _strike(sampler, "engine", signal.SIGSTOP)
    begin = time.monotonic()
    try:
        sampler.publish(policy.params, 1)
    finally:
        sampler._sync_seconds = 300
    assert time.monotonic() - begin < 290
    groups = sampler.sample(PROMPTS, policies.draw(8), seed=0)
    assert {int(v) for (c,) in groups for v in c.versions} == {1}


@pytest.mark.failure(10)
def test_restarts_are_bounded(policy, tmp_path):
    sampler = policies.make_sampler(policy, tmp_path, max_restarts=0, concurrency=12)
    with contextlib.closing(sampler):
        sampler.publish(policy.params, 0)
        with pytest.raises(ServerFailed, match="all vLLM servers failed .restarts"):
            _step(sampler, lambda: _strike(sampler, "api", signal.SIGKILL))


def test_tokens_report_their_version_across_an_update(running, tmp_path):
    policy, url = running
    sampler = policies.make_sampler(policy, tmp_path, urls=[url], in_flight="keep")
    trained = [policy, policy.changed(3)]
    with contextlib.closing(sampler):
        sampler.publish(policy.params, 0)
        over = threading.Event()
        # An update may by chance land between two draws; not six of them do.
        with ThreadPoolExecutor() as pool:
            draws = [
                pool.submit(_draw_until, over, sampler, PROMPTS[:4], most)
                for most in (250, 311)
            ]
            try:
                for version in range(1, 7):
                    time.sleep(0.5)
                    sampler.publish(trained[version % 2].params, version)
            finally:
                over.set()
            drawn = [pair for draw in draws for pair in draw.result()]
        across = [pair for pair in drawn if len(set(pair[1].versions.tolist())) > 1]
        assert len(across) >= 4
        for prompt, completion in across:
            ids = [*prompt, *completion.token_ids.tolist()]
            assert (np.diff(completion.versions) >= 0).all()
            for odd in (0, 1):
                own = trained[odd].reference(ids)[len(prompt) :]
                gap = np.abs(own - completion.sampler_logprobs)
                assert gap[completion.versions % 2 == odd].max(initial=0) < 1e-4


def _draw_until(over, sampler, prompts, most):
    """Draws again and again until it is over: prompts and completions."""
    drawn = []
    while not over.is_set():
        groups = sampler.sample(prompts, policies.draw(most), seed=most + len(drawn))
        drawn.extend(zip(prompts, (c for (c,) in groups), strict=True))
    return drawn


def test_the_error_of_a_dead_engine_is_reported(tmp_path):
    # vLLM's attention on CPUs has no kernel for heads of width 16.
    sizes = policies.TINY | {"hidden_size": 64}
    folder = policies.make_folder(tmp_path / "model", sizes=sizes)
    policy = policies.Policy.load(folder)
    with contextlib.closing(policies.make_sampler(policy, tmp_path)) as sampler:
        with pytest.raises(ServerFailed, match=r"head_dim=16 .*vllm\.log"):
            sampler.publish(policy.params, 0)
