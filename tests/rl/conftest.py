import pytest


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Folder of the bases that a module's runs make."""
    return tmp_path_factory.mktemp("bases")
