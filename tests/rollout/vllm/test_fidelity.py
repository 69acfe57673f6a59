"""The log-probs that a server reports equal those of an independent forward pass."""

import contextlib

import numpy as np
import pytest

from tests.rollout.vllm import policies

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def served(request, running, tmp_path_factory):
    tmp = tmp_path_factory.mktemp(request.param)
    policy, url = running
    if request.param == "float32":
        sampler = policies.make_sampler(policy, tmp, urls=[url])
    else:
        policy = policies.Policy.load(policy.folder, "bfloat16")
        sampler = policies.make_sampler(policy, tmp, tolerance=0.05)
    sampler.publish(policy.params, 0)
    yield policy, sampler
    sampler.close()


def _bound(policy, found):
    if policy.dtype == "float32":
        assert found.max() <= 1e-4
    else:
        assert found.mean() <= 0.02


@pytest.mark.failure(1)
@pytest.mark.failure(29)
def test_4096_tokens(served):
    policy, sampler = served
    prompts = policies.prompts(16)
    groups = sampler.sample(prompts, policies.draw(64, n=4), seed=1)
    found = policies.gaps(policy, prompts, groups)
    assert found.size == 4096
    _bound(policy, found)


@pytest.mark.failure(2)
@pytest.mark.parametrize(("temperature", "top_p"), [(0.6, 1.0), (0.7, 0.9)])
def test_logprobs_are_those_of_the_sampling_distribution(served, temperature, top_p):
    policy, sampler = served
    settings = dict(temperature=temperature, top_p=top_p)
    prompts = policies.prompts(8, seed=1)
    groups = sampler.sample(prompts, policies.draw(64, n=2, **settings), seed=2)
    found = policies.gaps(policy, prompts, groups, **settings)
    if policy.dtype == "bfloat16" and top_p < 1:
        # A token at the nucleus' edge may fall on either side of it in bfloat16.
        found = found[np.isfinite(found)]
    _bound(policy, found)


@pytest.mark.failure(1)
@pytest.mark.failure(24)
def test_only_the_given_stop_ids_end_a_completion(served):
    _, sampler = served
    prompts = policies.prompts(32, seed=2)
    params = policies.draw(200, stop_token_ids=policies.STOP, ignore_stop=False)
    groups = sampler.sample(prompts, params, seed=3)
    stopped = [c for (c,) in groups if c.finish_reason == "stop"]
    cut = [c for (c,) in groups if c.finish_reason == "length"]
    assert stopped and cut
    for completion in stopped:
        assert completion.token_ids[-1] in policies.STOP
        assert not np.isin(completion.token_ids[:-1], policies.STOP).any()
    for completion in cut:
        assert len(completion.token_ids) == 200 and completion.truncated
    # The checkpoint's own end of text, 9, is a token like any other.
    assert any((c.token_ids[:-1] == 9).any() for (c,) in groups)


def test_a_seed_gives_the_same_completions_in_any_order(served):
    policy, sampler = served
    if policy.dtype == "bfloat16":
        pytest.skip("rounding depends on which requests share a batch")
    prompts, seen = policies.prompts(8, seed=4), []

    def tokens(seed):
        how = dict(seed=seed, on_finished=lambda i, j, _: seen.append((i, j)))
        groups = sampler.sample(prompts, policies.draw(32, n=4), **how)
        return [tuple(c.token_ids.tolist()) for group in groups for c in group]

    first = tokens(seed=7)
    assert sorted(seen) == [(i, j) for i in range(8) for j in range(4)]
    assert first == tokens(seed=7)
    assert len(set(first)) == 32 and not set(first) & set(tokens(seed=8))


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_drawn(served):
    _, sampler = served
    with pytest.raises(ValueError, match="prompt 1: length 500 must be from 1 to"):
        sampler.sample([[2] * 10, [2] * 500], policies.draw(64), seed=0)


@pytest.mark.parametrize("family", ["Qwen3", "Llama"])
def test_other_families_are_served_as_they_are_trained(tmp_path, family):
    """Qwen3's norms, Llama's slower frequencies: published, drawn with, and scored."""
    folder = policies.make_folder(tmp_path / "base", family)
    policy = policies.Policy.load(folder).changed(1)
    with contextlib.closing(policies.make_sampler(policy, tmp_path)) as sampler:
        sampler.publish(policy.params, 1)
        prompts = policies.prompts(8)
        groups = sampler.sample(prompts, policies.draw(64, n=2), seed=1)
    _bound(policy, policies.gaps(policy, prompts, groups))
