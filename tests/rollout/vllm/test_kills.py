"""Trainers and servers killed at random moments of a publish: one version is served."""

import contextlib
import itertools
import os
import random
import signal
import threading
import time

import pytest

from rollout.vllm import supervisor
from tests.other_processes import start_python
from tests.rollout.vllm import policies

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

KILLS = 10
PROMPTS = policies.prompts(2, seed=6)


@pytest.fixture(scope="module")
def versions(policy):
    """Versions that are published in turn."""
    return [policy, *(policy.changed(seed) for seed in (1, 2, 3))]


def _check_served(sampler, policy, version):
    groups = sampler.sample(PROMPTS, policies.draw(8), seed=version)
    assert policies.gaps(policy, PROMPTS, groups).max() < 1e-4
    assert {int(v) for (c,) in groups for v in c.versions} == {version}


TRAINER = """
    import itertools, pathlib, sys
    from tests.rollout.vllm import policies
    folder, tmp, url = sys.argv[1:]
    policy = policies.Policy.load(pathlib.Path(folder))
    tmp = pathlib.Path(tmp)
    sampler = policies.make_sampler(policy, tmp, urls=[url], folder=tmp)
    for version in itertools.count():
        sampler.publish(policy.params, version)
        print(version, sampler.metrics()["sampler/publish_seconds"], flush=True)
"""


@pytest.mark.failure(11)
def test_a_trainer_killed_at_random_moments_of_a_publish(versions, tmp_path):
    server = policies.make_server(versions[0], tmp_path)
    server.start()
    server.wait_ready(600)
    rng, weights = random.Random(0), tmp_path / "weights"
    try:
        for kill in range(KILLS):
            arguments = versions[0].folder, weights, server.url
            trainer = start_python("-c", TRAINER, *arguments)
            for _ in range(3):
                _, seconds = trainer.stdout.readline().split()
            time.sleep(rng.random() * float(seconds))
            trainer.kill()
            trainer.wait()
            policy = versions[kill % len(versions)]
            sampler = policies.make_sampler(
                policy, tmp_path, urls=[server.url], folder=weights
            )
            assert len(list(weights.iterdir())) == 1
            sampler.publish(policy.params, kill)
            _check_served(sampler, policy, kill)
            sampler.close()
            assert server.pid is not None
    finally:
        server.stop(at_once=True)


@pytest.mark.failure(12)
def test_a_server_killed_at_random_moments_of_a_publish(versions, tmp_path):
    sampler = policies.make_sampler(versions[0], tmp_path)
    sampler._sync_seconds = 20  # an engine that dies during an update is noticed then
    rng, published = random.Random(1), itertools.count()

    def publish():
        version = next(published)
        policy = versions[version % len(versions)]
        sampler.publish(policy.params, version)
        return policy, version

    with contextlib.closing(sampler):
        publish()
        for kill in range(1, KILLS + 1):
            # Of a server that is up: how long a publish takes.
            publish()
            seconds = rng.random() * sampler.metrics()["sampler/update_seconds"]
            which = rng.choice(["root", "leaf"])
            tree = supervisor.descendants(sampler._fleet.members[0].process.pid)
            pid = tree[0] if which == "root" else tree[-1]
            timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
            timer.start()
            policy, version = publish()
            timer.join()
            _check_served(sampler, policy, version)
            assert sampler.metrics()["sampler/restarts"] == kill
            print(f"{which} killed after {seconds:.3f} s, {version} serves", flush=True)
