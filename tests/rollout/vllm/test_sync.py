"""A real server serves the published weights, or the last good version."""

import pathlib
import shutil

import numpy as np
import pytest

from models.safetensors_io import read_tensors, write_tensors
from rollout.vllm.client import LoadFailed
from rollout.vllm.sampler import OutOfStep
from tests.rollout.vllm import policies

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module", params=["tied", "untied"])
def served(request, running, tmp_path_factory):
    tmp = tmp_path_factory.mktemp(request.param)
    policy, url = running
    if request.param == "tied":
        sampler = policies.make_sampler(policy, tmp, urls=[url])
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


def _flip_one_bit(path, before):
    raw = bytearray(path.read_bytes())
    raw[-1001] ^= 1
    path.write_bytes(raw)


def _truncate(path, before):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096)


def _stale(path, before):
    shutil.copyfile(before, path)


def _missing(path, before):
    tensors = {name: np.array(x) for name, x in read_tensors(path).items()}
    del tensors["model.layers.2.mlp.up_proj.weight"]
    specs = {name: (x.shape, x.dtype) for name, x in tensors.items()}
    write_tensors(path, specs, tensors.items())


def _publish_damaged(policy, sampler, damage, version):
    """Publishes a version whose file changes after it was written."""
    write = sampler._weights.write

    def damaged(params, label, *, keep):
        written = write(params, label, keep=keep)
        damage(pathlib.Path(written.path), keep.path)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler._weights, "write", damaged)
        sampler.publish(policy.changed(31).params, version)


@pytest.mark.failure(8)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_flip_one_bit, "is corrupted or stale: checksum"),
        (_truncate, "invalid|incomplete|header"),
        (_stale, "is corrupted or stale: checksum"),
        (_missing, "no weights of .*up_proj.weight"),
    ],
)
def test_after_a_failed_load_the_last_good_version_is_served(served, damage, words):
    policy, sampler = served
    if sampler._fleet.members[0].process and damage is not _flip_one_bit:
        pytest.skip("each restart takes half a minute; one of them will do")
    sampler.publish(policy.params, 30)
    restarts = sampler.metrics()["sampler/restarts"]
    with pytest.raises(LoadFailed, match=words):
        _publish_damaged(policy, sampler, damage, 31)
    assert sampler.metrics()["sampler/restarts"] == restarts + 1
    prompts = policies.prompts(2, seed=3)
    groups = sampler.sample(prompts, policies.draw(16), seed=0)
    assert policies.gaps(policy, prompts, groups).max() < 1e-4
    assert {int(v) for (c,) in groups for v in c.versions} == {30}
    changed = policy.changed(32)
    sampler.publish(changed.params, 32)
    groups = sampler.sample(prompts, policies.draw(16), seed=0)
    assert policies.gaps(changed, prompts, groups).max() < 1e-4


@pytest.mark.failure(5)
def test_wrong_weights_stop_the_run_with_both_numbers(served, monkeypatch):
    policy, sampler = served
    other = policy.changed(9, 0.002).params
    monkeypatch.setattr(sampler, "_probe", lambda _, ids: policy.probe(other, ids))
    with pytest.raises(OutOfStep, match=r"worst: server -\d.*, trainer -\d"):
        sampler.publish(policy.params, 40)


def test_other_trainers_weights_are_noticed(served):
    policy, sampler = served
    sampler.publish(policy.params, 50)
    client = sampler._fleet.members[0].client
    body = {"new_version": "another-run:50"}
    client.call("POST", "/update_weight_version", body, timeout=10)
    with pytest.raises(OutOfStep, match="another-run:50"):
        sampler.sample(policies.prompts(1), policies.draw(4), seed=0)
