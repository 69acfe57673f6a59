"""A run of several processes: the leader announces each call of the engine to all.

The leader (process 0) draws problems, verifies, filters and packs. Everything that
touches devices is a call of its engine with plain host data as arguments. `JointEngine`
announces the call and makes it too, so that all processes run the same programs in the
same order. `follow` is the main loop of the others.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rl.processes.group import Follower, Leader, Processes
from rollout.types import Completion, OnFinished, OnPause

# Calls of the engine that all processes make. What is not listed is the leader's alone.
JOINT = ("update", "publish", "save", "restore", "export", "close")

E = TypeVar("E")


class JointEngine:
    """Proxy of an engine: calls listed in `JOINT` are made by all processes."""

    def __init__(self, engine: Any, leader: Leader, *, embedded: bool):
        """
        Args:
          engine: the leader's own.
          leader: announces calls to the followers.
          embedded: whether all processes sample together; otherwise the leader alone
            does, from servers.
        """
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
        """See `Sampler.sample`. All processes leave it at the same pause.

        A pause is between two programs and comes at the same point in all processes.
        """
        sample = functools.partial(
            self._engine.sample, *args, on_finished=on_finished, **kwargs
        )
        if not self._embedded:
            return sample(on_pause=on_pause)

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
    """Makes the engine, in every process.

    Args:
      processes: of the run.
      make_engine: makes this process's engine.
      config: as JSON; every process must have the same.
      embedded: see `JointEngine`.

    Returns:
      The engine, or a `JointEngine` with its interface.
    """
    if not isinstance(processes, Leader):
        return make_engine()
    processes.announce("begin", config)
    return cast(E, JointEngine(make_engine(), processes, embedded=embedded))


class _Left(Exception):
    """The leader has left a call of `sample`."""


def follow(leader: Follower, make_engine: Callable[[str], Any]) -> int:
    """Does what the leader announces until it ends the run.

    Args:
      leader: sends the commands.
      make_engine: makes this process's engine, given the leader's config as JSON.

    Returns:
      The exit status of the run.

    Raises:
      ValueError: a command that is not a joint call.
    """

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
            raise ValueError(f"{name!r} is not a joint call")
