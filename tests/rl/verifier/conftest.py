"""A clock of what a judgement itself costs."""

import gc
import time

import pytest


@pytest.fixture
def seconds():
    """CPU seconds of this thread, with what earlier tests left kept from the collector.

    Those tests' threads still compile and their millions of objects still wait to be
    collected; the process's time would hold both against the judgement.
    """
    gc.freeze()
    yield time.thread_time
    gc.unfreeze()
