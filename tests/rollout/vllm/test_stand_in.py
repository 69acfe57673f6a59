"""The client, with real processes and connections, and a small server for vLLM."""

import os
import pathlib
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rollout.types import SamplingParams
from rollout.vllm import supervisor
from rollout.vllm.client import ServerRefused, VllmClient
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.server import ServerFailed, ServerProcess, ServerSpec, command
from tests.other_processes import make_program
from tests.rollout.vllm import stand_in
from tools.evaluation.sampler import serve_fixed

PROMPTS = [[1, 2, 3], [4], [5, 6]]
PARAMS = SamplingParams(n=4, max_tokens=5, stop_token_ids=(0,))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    script = pathlib.Path(stand_in.__file__).resolve()
    line = f'exec {sys.executable} -S {script} "$@"'
    python = make_program(folder / "python", line)
    spec = ServerSpec(python=str(python), model=str(folder), max_model_len=64)
    return ServerProcess(spec, log_file=folder / "log")


@pytest.fixture(scope="module")
def sampler(server):
    # Few at a time, so that the server is working when it is killed.
    sampler = serve_fixed(servers=[server], max_model_len=64, concurrency=3)
    yield sampler
    sampler.close()


def _kill(server):
    """Kills all processes of a server; returns their ids."""
    pids = supervisor.descendants(server.pid)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def _ids(groups):
    return [[c.token_ids.tolist() for c in group] for group in groups]


@pytest.mark.failure(12)
def test_a_killed_server_is_restarted_and_nothing_is_lost(sampler, server):
    before = sampler.sample(PROMPTS, PARAMS, seed=1)
    finished, killed = [], []

    def kill_once(i, j, completion):
        finished.append((i, j))
        if not killed:
            killed.extend(_kill(server))

    after = sampler.sample(PROMPTS, PARAMS, seed=1, on_finished=kill_once)
    assert killed and not set(killed) & set(supervisor.descendants(server.pid))
    assert sampler._fleet.restarts == 1
    # Every completion once, and the same ones.
    assert sorted(finished) == [(i, j) for i in range(3) for j in range(4)]
    assert _ids(after) == _ids(before)


LONG = SamplingParams(n=4, max_tokens=50, stop_token_ids=(0,))  # 0.1 to 0.3 s


def test_a_call_that_ends_early_is_continued_by_the_next(sampler):
    ended, judged = [], []

    def enough():
        judged.append(len(ended))
        return len(ended) >= 4

    def note(*which):
        ended.append(which)

    partial = sampler.sample(PROMPTS, LONG, seed=3, on_pause=enough, on_finished=note)
    sizes = [len(c.token_ids) for group in partial for c in group]
    reasons = [c.finish_reason for group in partial for c in group]
    assert reasons.count("length") == len(ended) == sizes.count(50) < 12
    assert 0 in sizes, "three at a time are asked for, of twelve"
    assert any(0 < size < 50 for size in sizes), "and what was under way is kept"
    drawn, ended[:] = list(ended), []
    whole = sampler.sample(PROMPTS, LONG, seed=4, partial=partial, on_finished=note)
    assert len(ended) + len(drawn) == 12
    for before, after in zip(sum(partial, []), sum(whole, []), strict=True):
        n = len(before.token_ids)
        assert len(after.token_ids) == 50 and after.finish_reason == "length"
        assert after.token_ids[:n].tolist() == before.token_ids.tolist()
        assert (after is before) == (n == 50)


def test_a_call_that_ends_early_does_not_wait_for_slots(sampler):
    """An evaluation during async collection has them all."""
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(sampler.sample, PROMPTS * 4, LONG, seed=5)
        time.sleep(0.3)
        began = time.monotonic()
        partial = sampler.sample(PROMPTS, LONG, seed=6, on_pause=lambda: True)
        took = time.monotonic() - began
        assert not other.done() and took < 1.5
        assert all(c.unfinished for group in partial for c in group)
        # 48 completions of 0.2 s, three at a time; none of them was ended.
        assert {len(c.token_ids) for group in other.result() for c in group} == {50}


def test_servers_that_die_while_a_call_ends_do_not_hold_it_up(sampler, server):
    killed = []

    def enough():
        if not killed:
            killed.extend(_kill(server))
        return True

    partial = sampler.sample(PROMPTS, LONG, seed=7, on_pause=enough)
    assert all(c.unfinished for group in partial for c in group)
    whole = sampler.sample(PROMPTS, LONG, seed=8, partial=partial)
    assert {len(c.token_ids) for group in whole for c in group} == {50}


@pytest.mark.failure(1)
def test_every_sampling_field_is_sent(sampler, server, monkeypatch):
    """Of those that generation_config.json may hold, as vLLM 0.32 reads it."""
    asked = {}
    client = sampler._fleet.members[0].client
    call = client.call

    def note(method, path, body=None, **options):
        asked.update((body or {}).get("sampling_params", {}))
        return call(method, path, body, **options)

    with monkeypatch.context() as patch:
        patch.setattr(client, "call", note)
        (drawn,) = sampler.sample([[7]], PARAMS, seed=2)
    may_hold = {"repetition_penalty", "temperature", "top_k", "top_p", "min_p"}
    assert may_hold | {"presence_penalty", "frequency_penalty"} <= asked.keys()
    neutral = {key: asked[key] for key in ("repetition_penalty", "top_k", "min_p")}
    assert neutral == {"repetition_penalty": 1.0, "top_k": 0, "min_p": 0.0}
    assert (asked["temperature"], asked["top_p"]) == (1.0, 1.0)
    # A default that were filled in would show.
    for key in stand_in.DEFAULTS:
        less = {k: v for k, v in asked.items() if k != key}
        ids, _ = stand_in.draw([7], asked["seed"], less)
        assert ids != stand_in.draw([7], asked["seed"], asked)[0]
    everything = [stand_in.draw([7], asked["seed"], asked)[0]]
    assert everything[0] in [c.token_ids.tolist() for c in drawn]
    arguments = command(server.spec, port=1)
    assert arguments[arguments.index("--generation-config") + 1] == "vllm"
    assert np.isfinite([c.sampler_logprobs for c in drawn]).all()


@pytest.mark.failure(143)
def test_a_server_with_another_model_is_a_warning(sampler, capsys):
    url = sampler._fleet.members[0].client.url
    for name, warned in (("policy", False), ("another", True)):
        serve_fixed(urls=[url], max_model_len=64, names=(name,)).close()
        assert ("serves the model 'policy'" in capsys.readouterr().err) == warned


@pytest.mark.failure(179)
def test_an_address_without_a_vllm_server_says_what_is_needed(sampler):
    client = VllmClient(sampler._fleet.members[0].client.url + "/v1")
    with pytest.raises(ServerRefused, match=r":\d+/none: 404 .*vLLM server .*--url"):
        client.call("GET", "/none", timeout=10)


@pytest.mark.failure(209)
@pytest.mark.parametrize("models", [{"data": None}, {"data": [{"id": "llama"}]}, []])
def test_a_server_of_another_kind_says_what_is_needed(monkeypatch, models):
    client = VllmClient("http://127.0.0.1:9")
    monkeypatch.setattr(client, "call", lambda *_, **__: models)
    with pytest.raises(ServerRefused, match="max_model_len; give the address of a vL"):
        client.attach(max_model_len=64)


@pytest.mark.failure(211)
def test_an_address_that_is_given_twice_is_one_server():
    urls = ["http://a:8000", "http://b:8000", "http://a:8000/v1"]
    members = ServerFleet(urls=urls).members
    assert [member.client.url for member in members] == urls[:2]


@pytest.mark.failure(149)
def test_a_missing_server_is_waited_for_with_a_line(monkeypatch, caplog):
    monkeypatch.setattr("rollout.vllm.fleet._START_SECONDS", 0.1)
    with pytest.raises(ServerFailed, match="127.0.0.1:9: no vLLM server answers"):
        serve_fixed(urls=["http://127.0.0.1:9"], max_model_len=64)
    assert "http://127.0.0.1:9: waiting for a vLLM server" in caplog.text
