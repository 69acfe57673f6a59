"""Jobs side by side, by threads that stay."""

import threading
import time

from rollout.vllm.crew import Crew


def run(crew, times, meeting=None):
    """The threads that did the job; with a meeting, all of them at once."""
    threads, done = [], threading.Semaphore(0)

    def job():
        if meeting is not None:
            meeting.wait(timeout=10)
        threads.append(threading.get_ident())
        done.release()

    crew.run(job, times)
    for _ in range(times):
        assert done.acquire(timeout=10)
    time.sleep(0.05)
    return set(threads)


def test_threads_are_kept_and_added_only_where_they_are_missing():
    crew = Crew()
    first = run(crew, 5, threading.Barrier(5))
    assert len(first) == 5
    assert run(crew, 5, threading.Barrier(5)) == first
    more = run(crew, 8, threading.Barrier(8))
    assert len(more) == 8 and more > first
    crew.close()


def test_a_second_caller_does_not_wait_for_the_first():
    crew, release = Crew(), threading.Event()
    crew.run(lambda: release.wait(timeout=10), 3)
    assert len(run(crew, 3, threading.Barrier(3))) == 3
    release.set()
    crew.close()


def test_closed_it_leaves_no_thread():
    crew = Crew()
    threads = run(crew, 4, threading.Barrier(4))

    def alive():
        return threads & {thread.ident for thread in threading.enumerate()}

    assert alive() == threads
    crew.close()
    deadline = time.monotonic() + 10
    while alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)
