"""Servers that loaded the model themselves: what is drawn, started and attached."""

import os
import signal

import numpy as np
import pytest
import torch
import transformers

from rollout.types import SamplingParams
from rollout.vllm import supervisor
from rollout.vllm.client import ServerRefused
from tests.rollout.vllm import policies
from tools.evaluation.sampler import serve_fixed

pytestmark = pytest.mark.vllm
GREEDY = SamplingParams(max_tokens=24, temperature=0.0, stop_token_ids=policies.STOP)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    folder = policies.make_folder(tmp_path_factory.mktemp("fixed") / "model")
    return policies.Policy.load(folder)


@pytest.fixture(scope="module")
def sampler(policy, tmp_path_factory):
    tmp = tmp_path_factory.mktemp("server")
    server = policies.make_server(policy, tmp, load_format="auto")
    # Few at a time, so that the kill finds the server at work.
    sampler = serve_fixed(
        servers=[server], max_model_len=policies.LENGTH, concurrency=4
    )
    yield sampler
    sampler.close()


def check_greedy(policy, prompts, groups):
    """Token for token what transformers draws from the folder."""
    model = transformers.Qwen2ForCausalLM.from_pretrained(policy.folder)
    for prompt, (completion,) in zip(prompts, groups, strict=True):
        ends = dict(eos_token_id=list(policies.STOP), pad_token_id=0)
        how = dict(do_sample=False, max_new_tokens=GREEDY.max_tokens)
        ids = model.generate(torch.tensor([prompt]), **how, **ends)
        assert completion.token_ids.tolist() == ids[0, len(prompt) :].tolist()


def test_it_serves_the_folders_own_weights(policy, sampler):
    prompts = policies.prompts(6)
    told = []
    groups = sampler.sample(
        prompts, GREEDY, seed=0, on_finished=lambda i, j, done: told.append((i, j))
    )
    assert sorted(told) == [(i, 0) for i in range(6)]
    check_greedy(policy, prompts, groups)
    again = sampler.sample(prompts, GREEDY, seed=1)
    for (a,), (b,) in zip(groups, again, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()


def test_an_ordinary_server_is_attached_to_and_lives_on(policy, sampler):
    url = sampler._fleet.members[0].client.url
    attached = serve_fixed(urls=[url], max_model_len=policies.LENGTH)
    groups = attached.sample(policies.prompts(2), GREEDY, seed=0)
    check_greedy(policy, policies.prompts(2), groups)
    attached.close()
    assert sampler.sample(policies.prompts(1), GREEDY, seed=0)
    too_long = policies.LENGTH + 1
    with pytest.raises(ServerRefused, match=f"must be at least {too_long}, the"):
        serve_fixed(urls=[url], max_model_len=too_long)


@pytest.mark.failure(12)
def test_a_killed_server_comes_back_with_its_weights(policy, sampler):
    prompts = policies.prompts(12, seed=3)
    before = sampler.sample(prompts, GREEDY, seed=0)
    process = sampler._fleet.members[0].process
    killed = []

    def kill(i, j, completion):
        if not killed:
            # Below the supervisor is the API server, and below that the engine.
            killed.append(min(supervisor.descendants(process.pid)))
            os.kill(killed[0], signal.SIGKILL)

    after = sampler.sample(prompts, GREEDY, seed=0, on_finished=kill)
    assert killed and killed[0] not in supervisor.descendants(process.pid)
    assert sampler._fleet.restarts == 1
    for (a,), (b,) in zip(before, after, strict=True):
        np.testing.assert_array_equal(a.token_ids, b.token_ids)
