import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Folder of the bases that runs make; runs with equal settings share a base."""
    return tmp_path_factory.mktemp("bases")
