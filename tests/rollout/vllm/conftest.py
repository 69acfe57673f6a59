"""What tests of real servers must not leave behind."""

import pathlib
import time

import pytest


@pytest.fixture
def no_litter():
    """A test that asks for this may not leave shared memory behind."""
    before = _shared()
    yield
    # Tests of other processes end servers too, whose trackers take a moment.
    deadline = time.monotonic() + 15
    while left := {path for path in _shared() - before if not _in_use(path)}:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


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
