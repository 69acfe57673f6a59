"""Whoever is killed in a publish, whenever: what serves then is one version, whole."""

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from models.safetensors_io import write_tensors
from rollout.vllm import leash
from rollout.vllm.client import VllmClient
from tests.rollout.vllm import policies

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

KILLS = 10
PROMPTS = policies.prompts(2, seed=6)
KEY = "secret"
HERE = "http://127.0.0.1:0"


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """What is published in turn: small changes, which go as deltas, and large ones."""
    tmp = tmp_path_factory.mktemp("policy")
    first = policies.Policy.load(policies.make_folder(tmp / "model"))
    return [first, first.few_changed(1), first.changed(2), first.changed(3)]


@pytest.fixture
def server(versions, tmp_path):
    server = policies.make_server(versions[0], tmp_path, api_key=KEY)
    server.start()
    server.wait_ready(600)
    yield server
    server.stop(at_once=True)


TRAINER = """
    import itertools, json, pathlib, sys
    from models.safetensors_io import read_tensors
    from rollout.vllm.client import VllmClient
    from rollout.vllm.weight_sync import PublishedFiles, ServedFiles
    folder, url, run = sys.argv[1:]
    folder = pathlib.Path(folder)
    versions = [read_tensors(path) for path in sorted(folder.glob("*.safetensors"))]
    files = PublishedFiles(
        folder / f"weights-{run}",
        export=dict.items,
        specs={name: (x.shape, x.dtype) for name, x in versions[0].items()},
        dtype="float32",
    )
    transport = ServedFiles(files, url="http://127.0.0.1:0", key="secret")
    client = VllmClient(url, api_key="secret")
    client.attach_to_train(max_model_len=512, needs_versions=True)
    hello = {"init_info": transport.hello()}
    client.call("POST", "/init_weight_transfer_engine", hello, timeout=60)
    for version in itertools.count():
        print(version, flush=True)
        params = versions[version % len(versions)]
        told = transport.stage(params, f"{run}:{version}")
        client.update(told, mode="abort", timeout=60)
"""


def _serves_one_version(client, versions, run, last):
    """The label that is served, and that its weights are those of that label."""
    client.attach_to_train(max_model_len=policies.LENGTH, needs_versions=True)
    labels = set()
    for prompt in PROMPTS:
        drawn = client.generate(
            prompt,
            policies.draw(8),
            seed=0,
            version_of=lambda label: labels.add(label) or 0,
            timeout=60,
        )
        (label,) = labels
        served, _, version = label.partition(":")
        assert served == run and int(version) in (last - 1, last)
        policy = versions[int(version) % len(versions)]
        assert policies.gaps(policy, [prompt], [[drawn]]).max() < 1e-4
    return label


@pytest.mark.failure(11)
def test_a_trainer_killed_at_random_moments_of_a_publish(versions, server, tmp_path):
    for number, policy in enumerate(versions):
        path = tmp_path / f"{number}.safetensors"
        write_tensors(path, policy.specs(), policy.export(policy.params))
    rng = random.Random(0)
    client = VllmClient(server.url, api_key=KEY)
    for round in range(KILLS):
        trainer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(TRAINER)]
            + [str(tmp_path), server.url, f"run{round}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=policies.ROOT,
        )
        begins, last = [], rng.randrange(2, 8)
        while int(trainer.stdout.readline()) < last:
            begins.append(time.monotonic())
        # Anywhere in a publish, which takes about as long as the ones before.
        time.sleep(rng.random() * (time.monotonic() - begins[0]) / last)
        trainer.kill()
        trainer.wait()
        last = int(([last, *trainer.stdout.read().split()])[-1])
        label = _serves_one_version(client, versions, f"run{round}", last)
        print(f"killed in version {last}, {label} serves", flush=True)
        assert server.pid is not None


@pytest.mark.failure(12)
def test_a_server_killed_at_random_moments_of_a_publish(versions, tmp_path):
    sampler = policies.make_sampler(
        versions[0],
        tmp_path,
        servers=[policies.make_server(versions[0], tmp_path, api_key=KEY)],
        url=HERE,
        api_key=KEY,
    )
    rng, published = random.Random(1), itertools.count()

    def publish():
        version = next(published)
        policy = versions[version % len(versions)]
        sampler.publish(policy.params, version)
        return policy, version

    try:
        publish()
        for kill in range(1, KILLS + 1):
            # Of a server that is up: how long a publish takes.
            publish()
            seconds = rng.random() * sampler.metrics()["sampler/update_seconds"]
            which = rng.choice(["root", "leaf"])
            tree = leash.descendants(sampler._fleet.members[0].process.pid)
            pid = tree[0] if which == "root" else tree[-1]
            timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
            timer.start()
            policy, version = publish()
            timer.join()
            groups = sampler.sample(PROMPTS, policies.draw(8), seed=version)
            assert policies.gaps(policy, PROMPTS, groups).max() < 1e-4
            assert {int(v) for (c,) in groups for v in c.versions} == {version}
            assert sampler.metrics()["sampler/restarts"] == kill
            print(f"{which} killed after {seconds:.3f} s, {version} serves", flush=True)
    finally:
        sampler.close()
