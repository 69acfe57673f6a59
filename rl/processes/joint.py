"""Runs the joint calls of the engine in all processes of a run.

The leader (process 0) selects problems, verifies, filters and packs. It uses devices
only in calls of its engine, whose arguments are host data. `JointEngine` sends each
joint call to the followers and then makes it in the leader, so that all processes run
the same programs in the same order. `follow` is the main loop of a follower.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rl.processes.group import Follower, Leader, Processes
from rollout.types import Completion, OnFinished, OnPause

# Methods of the engine that all processes call, in addition to `sample`. Only the
# leader calls other methods.
JOINT = ("update", "publish", "save", "restore", "export", "close")

E = TypeVar("E")


class JointEngine:
    """Wraps the leader's engine so that all processes call the methods of `JOINT`."""

    def __init__(self, engine: Any, leader: Leader, *, embedded: bool):
        # Embedded: all processes sample together on their devices. Otherwise only the
        # leader samples, from vLLM servers.
        self._engine, self._leader, self._embedded = engine, leader, embedded

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._engine, name)
        if name not in JOINT:
            return own

        def call(*args: Any, **kwargs: Any) -> Any:
            self._leader.announce(name, *args, **kwargs)
            return own(*args, **kwargs)

        return call

    def sample(
        self,
        *args: Any,
        on_finished: OnFinished | None = None,
        on_pause: OnPause | None = None,
        **kwargs: Any,
    ) -> list[list[Completion]]:
        """Samples like `rollout.types.Sampler.sample`, in all processes if embedded."""
        sample = functools.partial(
            self._engine.sample, *args, on_finished=on_finished, **kwargs
        )
        if not self._embedded:
            return sample(on_pause=on_pause)

        # Samplers pause between the same device programs in all processes. In each
        # pause the leader sends its decision whether sampling ends.
        def pause() -> bool:
            enough = on_pause is not None and bool(on_pause())
            self._leader.announce("enough" if enough else "go on")
            return enough

        self._leader.announce("sample", *args, **kwargs)
        try:
            return sample(on_pause=pause)
        except BaseException:
            self._leader.announce("leave")
            raise


def lead(
    processes: Processes, make_engine: Callable[[], E], *, config: str, embedded: bool
) -> E:
    """Makes the engine, or a `JointEngine` if there are followers.

    Followers check that `config` equals their own.
    """
    if not isinstance(processes, Leader):
        return make_engine()
    processes.announce("begin", config)
    return cast(E, JointEngine(make_engine(), processes, embedded=embedded))


class _Left(Exception):
    """Ends `sample` in a follower, because `sample` raised an error in the leader."""


def follow(leader: Follower, make_engine: Callable[[str], Any]) -> int:
    """Executes the leader's commands until the run ends; returns the exit status."""

    def pause() -> bool:
        word, *_ = leader.receive()
        if word == "leave":
            raise _Left
        return word == "enough"

    engine: Any = None
    while True:
        name, args, kwargs = leader.receive()
        if name == "end":
            return args[0]
        if name == "begin":
            engine = make_engine(*args)
        elif name == "sample":
            try:
                engine.sample(*args, **kwargs, on_pause=pause)
            except _Left:
                continue
        elif name in JOINT:
            getattr(engine, name)(*args, **kwargs)
        else:
            raise ValueError(
                f"process 0 sent the unknown command {name!r}; start all processes with"
                " the same code"
            )
