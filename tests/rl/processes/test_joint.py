"""The joint engine and its followers, in threads, without devices."""

import concurrent.futures
import contextlib
import queue
import threading
import types

import pytest

from configs import quickstart
from configs.base import from_config
from configs.schema import config_json
from rl import train
from rl.engine import Engine
from rl.processes import joint
from rl.processes.group import SingleProcess
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

    sample = Engine.sample

    def __init__(self, barrier, processes, *, embedded=True):
        self._barrier, self.processes, self.embedded = barrier, processes, embedded
        self.done = []
        self.sampler = types.SimpleNamespace(sample=self._sample)

    def check_stop(self): ...

    def _sample(self, prompts, params, *, seed, partial, on_finished, on_pause):
        for call in range(4):
            self._meet(call)
            if call == 2:
                on_finished(0, 0, "a completion")
            if on_pause():
                break
        return "completions"

    @joint.joint
    def publish(self, version):
        self._meet(version)

    def _meet(self, call):
        self._barrier.wait(timeout=30)
        self.done.append(call)


PARAMS = SamplingParams(max_tokens=1, stop_token_ids=(0,))


@pytest.mark.parametrize(
    "ends,calls", [("pause", 2), ("enough", 2), ("finished", 3), ("none", 4)]
)
def test_all_leave_a_call_of_the_sampler_at_the_same_pause(ends, calls):
    line, barrier = Line(), threading.Barrier(2)
    own, other = Together(barrier, line), Together(barrier, SingleProcess())
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
        with raised:
            own.sample([[1]], PARAMS, seed=3, on_finished=finished, on_pause=pause)
        own.publish(7)
        line.announce("end", 0)
        assert status.result(timeout=30) == 0
    assert own.done == other.done == [*range(calls), 7]


def test_with_servers_sampling_announces_nothing_in_any_thread():
    line = Line()
    engine = Together(threading.Barrier(1), line, embedded=False)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        drawn = pool.submit(engine.sample, [[1]], PARAMS, seed=3)
        assert drawn.result(timeout=30) == "completions"
    assert line.names == []


def test_only_joint_calls_are_made():
    line = Line()
    line.announce("begin", "{}")
    line.announce("__init__")
    with pytest.raises(ValueError, match="unknown command '__init__'"):
        joint.follow(line, lambda config: Together(None, line))


@pytest.mark.failure(175)
@pytest.mark.parametrize("text", [None, "{}"])
def test_a_process_with_another_workdir_is_refused(tmp_path, text):
    class Leader:
        def receive(self):
            return "begin", [config_json(config)], {}

    config = from_config(quickstart.get_config())
    if text:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"--workdir=.*: process 0 has another"):
        train._follow(config, tmp_path, Leader())
