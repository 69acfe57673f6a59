"""The joint engine and its followers, in threads, without devices."""

import concurrent.futures
import contextlib
import queue
import threading

import pytest

from rl.engine import Engine
from rl.processes import joint
from rl.processes.messages import decode, encode
from rollout.types import SamplingParams


class Line:
    """Carries commands from a leader to its follower."""

    def __init__(self):
        self._messages = queue.SimpleQueue()
        self.names = []

    def announce(self, name, *args, **kwargs):
        self.names.append(name)
        self._messages.put(encode(name, *args, **kwargs))

    def receive(self):
        return decode(self._messages.get(timeout=30))


class Together:
    """An engine whose joint calls break when one process does not make them."""

    updates = 5

    def __init__(self, barrier):
        self._barrier, self.done = barrier, []

    def sample(self, prompts, params, *, seed, on_finished=None, on_pause=None):
        for call in range(4):
            self.publish(call)
            if call == 2 and on_finished is not None:
                on_finished(0, 0, "a completion")
            if on_pause is not None and on_pause():
                break
        return "completions"

    def publish(self, version):
        self._barrier.wait(timeout=30)
        self.done.append(version)


PARAMS = SamplingParams(max_tokens=1, stop_token_ids=(0,))


@pytest.mark.parametrize(
    "ends,calls", [("pause", 2), ("enough", 2), ("finished", 3), ("none", 4)]
)
def test_all_leave_a_call_of_the_sampler_at_the_same_pause(ends, calls):
    line, barrier = Line(), threading.Barrier(2)
    own, other = Together(barrier), Together(barrier)
    pauses = []

    def finished(*of_completion):
        if ends == "finished":
            raise KeyboardInterrupt

    def pause():
        pauses.append(ends)
        if pauses == ["pause"] * 2:
            raise KeyboardInterrupt
        return pauses == ["enough"] * 2

    raised = contextlib.nullcontext()
    if ends in ("pause", "finished"):
        raised = pytest.raises(KeyboardInterrupt)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        status = pool.submit(joint.follow, line, lambda config: other)
        line.announce("begin", "{}")
        engine = joint.JointEngine(own, line, embedded=True)
        with raised:
            engine.sample([[1]], PARAMS, seed=3, on_finished=finished, on_pause=pause)
        engine.publish(7)
        line.announce("end", 0)
        assert status.result(timeout=30) == 0
    assert own.done == other.done == [*range(calls), 7]
    assert engine.updates == 5


def test_with_servers_sampling_announces_nothing_in_any_thread():
    line = Line()
    engine = joint.JointEngine(Together(threading.Barrier(1)), line, embedded=False)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        drawn = pool.submit(engine.sample, [[1]], PARAMS, seed=3)
        assert drawn.result(timeout=30) == "completions"
    assert line.names == []


def test_only_joint_calls_are_made():
    assert all(callable(getattr(Engine, name)) for name in joint.JOINT)
    line = Line()
    line.announce("begin", "{}")
    line.announce("__init__")
    with pytest.raises(ValueError, match="unknown command '__init__'"):
        joint.follow(line, lambda config: Together(None))
