"""Calls that end early, and calls that continue their completions, on real servers."""

import contextlib

import numpy as np
import pytest

from tests.rollout.vllm import policies

pytestmark = pytest.mark.vllm
PROMPTS = [[5 + i, 9, 300 - i] for i in range(6)]


def test_unfinished_completions_continue_under_new_weights(running, tmp_path):
    policy, url = running
    sampler = policies.make_sampler(policy, tmp_path, urls=[url], concurrency=12)
    trained = [policy, policy.changed(3), policy.changed(4)]
    params = policies.draw(300, n=3, stop_token_ids=policies.STOP, ignore_stop=False)
    partial, calls = None, []
    with contextlib.closing(sampler):
        for version, of in enumerate(trained):
            sampler.publish(of.params, version)
            ended = []

            def enough(ended=ended, last=version == 2):
                return not last and len(ended) >= 3

            def note(*of_one, ended=ended):
                ended.append(of_one)

            told = dict(partial=partial, on_finished=note, on_pause=enough)
            partial = sampler.sample(PROMPTS, params, seed=version, **told)
            calls.append(partial)
            assert len(ended) == sum(
                not c.unfinished and (version == 0 or calls[-2][p][s] is not c)
                for p, group in enumerate(partial) for s, c in enumerate(group)
            )  # fmt: skip
            for member in sampler._fleet.members:
                assert _others(member.client) == 0, "nobody draws on for nothing"
    first = [c for group in calls[0] for c in group]
    assert any(c.unfinished and len(c.token_ids) > 5 for c in first)
    across = 0
    for prompt, completions, before in zip(PROMPTS, partial, calls[0], strict=True):
        for c, start in zip(completions, before, strict=True):
            n = len(start.token_ids)
            assert c.token_ids[:n].tolist() == start.token_ids.tolist()
            assert not c.unfinished and len(c.token_ids) <= 300
            stopped = c.token_ids[-1] in policies.STOP
            assert c.finish_reason == ("stop" if stopped else "length")
            assert stopped or len(c.token_ids) == 300
            assert (np.diff(c.versions) >= 0).all()
            across += len(set(c.versions.tolist())) > 1
            ids = [*prompt, *c.token_ids.tolist()]
            for version, of in enumerate(trained):
                own = of.reference(ids)[len(prompt) :]
                gap = np.abs(own - c.sampler_logprobs)[c.versions == version]
                assert gap.max(initial=0) < 1e-4
    assert across >= 3


def _others(client) -> float:
    """The engine's running requests, without the trainer's own.

    It counts when it steps: what ended between two steps is part of the last count
    until another request comes. The second answer comes after the first is counted.
    """
    one = policies.draw(1)
    for seed in range(2):
        client.generate([5], one, seed=seed, version_of=lambda _: 0)
    text = client._exchange("GET", "/metrics", None, 10).decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting{"))
    )
