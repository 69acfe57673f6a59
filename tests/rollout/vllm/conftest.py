"""Fixtures for tests of real servers: a running one, and a check of shared memory."""

import json
import pathlib

import pytest

from tests.other_processes import eventually
from tests.rollout.vllm import policies


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("policy")
    return policies.Policy.load(policies.make_folder(tmp / "model"))


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    """A policy and a running server, to which the samplers of many tests attach."""
    tmp = tmp_path_factory.mktemp("running")
    folder = policies.make_folder(tmp / "model")
    # A checkpoint that would change every token if its sampling defaults counted.
    hostile = {"temperature": 0.1, "top_k": 20, "top_p": 0.5, "max_new_tokens": 3}
    hostile |= {"repetition_penalty": 1.1, "min_p": 0.3, "eos_token_id": [9]}
    (folder / "generation_config.json").write_text(json.dumps(hostile))
    policy = policies.Policy.load(folder)
    server = policies.make_server(policy, tmp)
    server.start()
    server.wait_ready(300)
    yield policy, server.url
    server.stop()


@pytest.fixture
def no_litter():
    """Fails a test that leaves shared memory behind."""
    before = _shared()
    yield
    # Tests of other processes end servers too, whose trackers take a moment.
    eventually(lambda: all(map(_in_use, _shared() - before)))


def _shared():
    return set(pathlib.Path("/dev/shm").glob("psm_*"))


def _in_use(path):
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            if path.name in maps.read_text():
                return True
        except OSError:
            continue
    return False
