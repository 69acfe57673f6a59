"""Weights pushed to a real server are the weights that it serves, or are refused."""

import os
import pathlib

import ml_dtypes
import numpy as np
import pytest

from models.safetensors_io import write_tensors
from rollout.vllm.client import ServerRefused
from rollout.vllm.sampler import OutOfStep
from tests.rollout.vllm import policies

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", params=["tied", "untied"])
def served(request, running, tmp_path_factory):
    tmp = tmp_path_factory.mktemp(request.param)
    policy, url = running
    if request.param == "tied":
        sampler = policies.make_sampler(policy, tmp, servers=[], urls=[url])
    else:
        policy = policies.Policy.load(policies.make_folder(tmp / "model", tied=False))
        sampler = policies.make_sampler(policy, tmp)
        with pytest.MonkeyPatch.context() as patch:
            # A worker of its own decodes, as with several GPUs.
            patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
            sampler.publish(policy.params, 0)
    yield policy, sampler
    sampler.close()


@pytest.mark.failure(5)
@pytest.mark.failure(6)
@pytest.mark.failure(7)
@pytest.mark.failure(8)
def test_twenty_updates_are_served_exactly(served):
    policy, sampler = served
    sampler.publish(policy.params, 0)
    # Cached by the server under every version, so a stale prefix would show.
    long = policies.prompts(1, low=300, high=301, seed=5)
    for version in range(1, 21):
        policy = policy.changed(version)
        sampler.publish(policy.params, version)
        groups = sampler.sample(long, policies.draw(16, n=2), seed=version)
        assert policies.gaps(policy, long, groups).max() < 1e-4
        for completion in groups[0]:
            assert (completion.versions == version).all()
        assert sampler.metrics()["sampler/probe_gap_max"] < 1e-4


@pytest.mark.failure(8)
def test_deltas_are_served_exactly_and_a_bad_one_is_healed(served):
    policy, sampler = served
    sampler.publish(policy.params, 60)
    transport = sampler._transport
    stage = transport.stage
    prompts = policies.prompts(1, low=300, high=301, seed=5)
    for version in range(61, 69):
        policy = policy.few_changed(version)
        lost = version == 65
        if lost:
            transport.stage = lambda *told: _without_delta(stage(*told))
        sampler.publish(policy.params, version)
        transport.stage = stage
        found = sampler.metrics()
        assert (found["sampler/healed_tensors"] > 0) == lost
        assert lost == (found["sampler/publish_bytes"] > transport.bytes / 4)
        groups = sampler.sample(prompts, policies.draw(16), seed=version)
        assert policies.gaps(policy, prompts, groups).max() < 1e-4
    # Told to take the last one whole, the server finds that it holds all of it.
    transport._digests.clear()
    sampler.publish(policy.params, 69)
    assert sampler.metrics()["sampler/publish_bytes"] == 0


def _without_delta(announced):
    os.unlink(announced["delta"])
    return announced


def _flip_one_bit(path, before, policy):
    raw = bytearray(path.read_bytes())
    raw[-1001] ^= 1
    path.write_bytes(raw)


def _truncate(path, before, policy):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096)


def _stale(path, before, policy):
    path.write_bytes(before)


def _missing(path, before, policy):
    specs = policy.specs()
    tensors = dict(policy.export(policy.params))
    for mapping in (specs, tensors):
        del mapping["model.layers.2.mlp.up_proj.weight"]
    write_tensors(path, specs, tensors.items())


def _wrong_dtype(path, before, policy):
    kind = np.dtype(ml_dtypes.bfloat16)
    specs = {name: (shape, kind) for name, (shape, _) in policy.specs().items()}
    tensors = ((n, a.astype(kind)) for n, a in policy.export(policy.params))
    write_tensors(path, specs, tensors)


@pytest.mark.failure(8)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_flip_one_bit, "is corrupted or stale: digest"),
        (_truncate, "unreadable weights file"),
        (_stale, "is corrupted or stale: digest"),
        (_missing, "lacks model.layers.2.mlp.up_proj.weight"),
        (_wrong_dtype, "is BF16, serving dtype is F32"),
    ],
)
def test_a_bad_file_is_refused_and_the_old_weights_serve_on(served, damage, words):
    policy, sampler = served
    sampler.publish(policy.params, 30)
    transport = sampler._transport
    stage = transport.stage

    before = transport._file.read_bytes()

    def damaged(params, version):
        announced = stage(params, version)
        damage(pathlib.Path(announced["whole"]), before, policy)
        return announced

    transport.stage = damaged
    try:
        with pytest.raises(ServerRefused, match=words):
            sampler.publish(policy.changed(31).params, 31)
    finally:
        transport.stage = stage
    prompts = policies.prompts(2, seed=3)
    groups = sampler.sample(prompts, policies.draw(16), seed=0)
    assert policies.gaps(policy, prompts, groups).max() < 1e-4
    assert {int(v) for (c,) in groups for v in c.versions} == {30}
    sampler.publish(policy.params, 32)


@pytest.mark.failure(5)
def test_wrong_weights_stop_the_run_with_both_numbers(served):
    policy, sampler = served
    honest = sampler._probe
    sampler._probe = lambda params, ids: honest(policy.changed(9, 0.002).params, ids)
    try:
        with pytest.raises(OutOfStep, match=r"worst: server -\d.*, trainer -\d"):
            sampler.publish(policy.params, 40)
    finally:
        sampler._probe = honest


def test_other_trainers_weights_are_noticed(served):
    policy, sampler = served
    sampler.publish(policy.params, 50)
    client = sampler._fleet.members[0].client
    body = {"new_version": "somebody-else:50"}
    client.call("POST", "/update_weight_version", body, timeout=10)
    with pytest.raises(OutOfStep, match="somebody-else:50"):
        sampler.sample(policies.prompts(1), policies.draw(4), seed=0)
