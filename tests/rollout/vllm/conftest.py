"""What tests of real servers must not leave behind."""

import pathlib
import time

import pytest


@pytest.fixture
def no_litter():
    """A test that asks for this may not leave shared memory behind."""
    before = set(pathlib.Path("/dev/shm").glob("psm_*"))
    yield
    time.sleep(0.2)
    left = set(pathlib.Path("/dev/shm").glob("psm_*")) - before
    owned = [path for path in left if not _in_use(path)]
    assert not owned


def _in_use(path):
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            if path.name in maps.read_text():
                return True
        except OSError:
            continue
    return False
