import pytest

from rollout.jax_sampler import JaxSampler


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Folder of the bases that runs make; runs with equal settings share a base."""
    return tmp_path_factory.mktemp("bases")


@pytest.fixture
def traced(monkeypatch):
    """Programs are traced where they are first called, and fewer of them are."""
    monkeypatch.setattr(JaxSampler, "warm_up", lambda *_, **__: None)
