"""Servers that run already: updated and left running, or rejected with one line."""

import os
import subprocess

import pytest

from rollout.vllm.client import ServerRefused, VllmClient
from rollout.vllm.sampler import VllmSampler
from rollout.vllm.server import free_port
from tests.rollout.vllm import policies

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("no_litter")]
PROMPTS = policies.prompts(12, seed=6)


class _Foreign:
    """A server that the sampler did not start."""

    def __init__(self, tmp, folder, *extra, key=""):
        policies.needs_vllm()
        self.log = tmp / "foreign.log"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        arguments = f"--model {folder} --dtype float32 --max_model_len 512"
        arguments += f" --max_num_seqs 64 --enforce_eager --port {port}"
        environment = {name: os.environ[name] for name in ("PATH", "HOME")}
        environment["VLLM_API_KEY"] = key
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [policies.PYTHON, "-m", "rollout.vllm.server"]
                + [*arguments.split(), *extra],
                cwd=policies.ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self):
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="module")
def foreign(policy, tmp_path_factory):
    server = _Foreign(tmp_path_factory.mktemp("foreign"), policy.folder, key="secret")
    yield server
    server.end()


def _attach(policy, tmp, server, **changes) -> VllmSampler:
    settings = dict(urls=[server.url], api_key="secret")
    return policies.make_sampler(policy, tmp, **settings | changes)


@pytest.mark.failure(11)
def test_an_attached_server_outlives_its_trainer(policy, tmp_path, foreign):
    for trained in (policy.changed(1), policy.changed(2)):
        sampler = _attach(trained, tmp_path, foreign)
        sampler.publish(trained.params, 7)
        groups = sampler.sample(PROMPTS, policies.draw(8), seed=0)
        assert policies.gaps(trained, PROMPTS, groups).max() < 1e-4
        sampler.close()
        assert foreign.process.poll() is None
        # As a trainer leaves it that is killed during a load.
        client = VllmClient(foreign.url, api_key="secret")
        client.call("POST", "/pause?mode=abort", {}, timeout=30)


def test_a_server_that_does_not_see_the_weights_is_refused(policy, tmp_path, foreign):
    sampler = _attach(policy, tmp_path, foreign, folder=tmp_path)
    sampler._weights.owner.unlink()
    with pytest.raises(ServerRefused, match=r"No such file.*: set config.*weight_dir"):
        sampler.publish(policy.params, 0)
    sampler.close()


def test_every_route_that_changes_weights_requires_the_key(foreign, policy, tmp_path):
    _attach(policy, tmp_path, foreign).publish(policy.params, 0)
    anyone = VllmClient(foreign.url)
    for route in ("/pause", "/update_weight_version", "/collective_rpc", "/resume"):
        with pytest.raises(ServerRefused, match="401 .*VLLM_API_KEY"):
            anyone.call("POST", route, {}, timeout=10)


def test_a_server_of_another_model_is_refused(foreign, tmp_path):
    sizes = policies.TINY | {"intermediate_size": 256}
    other = policies.Policy.load(policies.make_folder(tmp_path / "other", sizes=sizes))
    sampler = _attach(other, tmp_path, foreign)
    with pytest.raises(ServerRefused, match=r"down_proj.weight has shape \[128, 512\]"):
        sampler.publish(other.params, 0)
    sampler.close()


def test_a_server_with_a_shorter_context_is_rejected(foreign, policy, tmp_path):
    sampler = _attach(policy, tmp_path, foreign, max_model_len=1000)
    with pytest.raises(ServerRefused, match="max-model-len 512: .* at least 1000"):
        sampler.publish(policy.params, 0)
    sampler.close()


@pytest.mark.failure(2)
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--logprobs-mode", "raw_logprobs"], "--logprobs-mode processed_logprobs"),
        (["--no-enable-scale-out", "--no-skip-tokenizer-init"], "lacks /inference/v1/"),
    ],
)
def test_a_server_with_other_flags_is_refused(policy, tmp_path, flags, words):
    server = _Foreign(tmp_path, policy.folder, *flags)
    try:
        sampler = _attach(policy, tmp_path, server, api_key="")
        with pytest.raises(ServerRefused, match=words):
            sampler.publish(policy.params, 0)
        sampler.close()
    finally:
        server.end()
