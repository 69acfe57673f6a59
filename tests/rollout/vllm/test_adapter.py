"""A real server serves adapters alone, published over the base that it has read."""

import dataclasses

import jax
import numpy as np
import pytest

from models import lora, peft_folder
from models.decoder import abstract_params, param_shardings
from models.tensors import ADAPTERS, DTYPES
from rollout.vllm.client import LoadFailed
from rollout.vllm.sampler import ADAPTER_PROBE_TOLERANCE, Export, OutOfStep
from tests.rollout.vllm import policies

pytestmark = pytest.mark.vllm
SIZES = lora.Lora(rank=4, alpha=32.0, targets="all")


def _adapted(policy, seed, scale=0.02):
    """The policy with other adapters."""
    model = policy.model.clone(
        config=dataclasses.replace(policy.model.config, lora=SIZES)
    )
    base = lora.split(policy.params)[1] or policy.params
    shardings = param_shardings(model, model.mesh)
    trained = lora.init_adapters(abstract_params(model)[0], shardings, seed)
    rng = np.random.default_rng(seed)
    trained = jax.tree.map(lambda x: x + scale * rng.normal(size=x.shape), trained)
    return dataclasses.replace(policy, model=model, params=lora.join(trained, base))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("adapter")
    policy = _adapted(policies.Policy.load(policies.make_folder(tmp / "model")), 0)
    config = policy.model.config
    sampler = policies.make_sampler(
        policy,
        tmp,
        servers=[policies.make_server(policy, tmp, lora_rank=SIZES.rank)],
        weights=dict(
            export=Export(config, DTYPES["float32"], ADAPTERS),
            adapter_config=peft_folder.describe(config, base="model"),
        ),
        tolerance=ADAPTER_PROBE_TOLERANCE["float32"],
    )
    yield policy, sampler
    sampler.close()


def test_ten_publishes_are_served_exactly(served):
    policy, sampler = served
    # Cached by the server under every version, so a stale prefix would show.
    long = policies.prompts(1, low=300, high=301, seed=5)
    seen = set()
    for version in range(10):
        policy = _adapted(policy, version)
        sampler.publish(policy.params, version)
        groups = sampler.sample(long, policies.draw(16, n=2), seed=7)
        assert policies.gaps(policy, long, groups).max() < 1e-4
        for completion in groups[0]:
            assert (completion.versions == version).all()
            seen.add(tuple(completion.token_ids.tolist()))
    assert len(seen) == 20


def test_wrong_adapters_stop_and_a_corrupt_file_keeps_the_last(served, monkeypatch):
    policy, sampler = served
    good, other = _adapted(policy, 100), _adapted(policy, 101)
    sampler.publish(good.params, 20)
    with monkeypatch.context() as patch:
        patch.setattr(sampler, "_probe", lambda _, ids: good.probe(other.params, ids))
        with pytest.raises(OutOfStep, match="seems not to serve version 21"):
            sampler.publish(good.params, 21)
    write = sampler._weights.write

    def corrupted(*arguments, **options):
        published = write(*arguments, **options)
        first = next(iter(published.checksums))
        return dataclasses.replace(
            published, checksums={**published.checksums, first: 0}
        )

    with monkeypatch.context() as patch:
        patch.setattr(sampler._weights, "write", corrupted)
        with pytest.raises(LoadFailed, match="corrupted or stale"):
            sampler.publish(other.params, 22)
    long = policies.prompts(1, low=300, high=301, seed=5)
    groups = sampler.sample(long, policies.draw(16), seed=7)
    assert policies.gaps(good, long, groups).max() < 1e-4
