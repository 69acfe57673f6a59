"""A run of several processes: the leader announces each call of the engine to all.

The leader (process 0) draws problems, verifies, filters and packs. Everything that
touches devices is a call of its engine with plain host data as arguments. `JointEngine`
announces the call and makes it too, so that all processes run the same programs in the
same order. `follow` is the main loop of the others.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from rl.processes.group import Leader, Processes
from rl.processes.messages import Message
from rollout.types import Completion, OnFinished, OnPause, SamplingParams, SoFar

# Calls of the engine that all processes make. What is not listed is the leader's alone.
JOINT = ("update", "score", "publish", "save", "restore", "export", "close")

E = TypeVar("E")


class Announcer(Protocol):
    """Sends commands to the followers; see `rl.processes.group.Leader`."""

    def announce(self, name: str, *args: Any, **kwargs: Any) -> None: ...


class Receiver(Protocol):
    """Receives the leader's commands; see `rl.processes.group.Follower`."""

    def receive(self) -> Message: ...


class JointEngine:
    """Proxy of an engine: calls listed in `JOINT` are made by all processes."""

    def __init__(self, engine: Any, leader: Announcer, *, embedded: bool):
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
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        begun: SoFar | None = None,
        on_finished: OnFinished | None = None,
        on_pause: OnPause | None = None,
    ) -> list[list[Completion]]:
        """See `Engine.sample`. All processes leave it at the same pause.

        A pause is between two programs and comes at the same point in all processes.
        """
        leader = self._leader

        def pause() -> bool:
            enough = on_pause is not None and bool(on_pause())
            leader.announce("enough" if enough else "go on")
            return enough

        if self._embedded:
            leader.announce("sample", prompts, params, seed=seed, begun=begun)
        try:
            return self._engine.sample(
                prompts,
                params,
                seed=seed,
                begun=begun,
                on_finished=on_finished,
                on_pause=pause if self._embedded else on_pause,
            )
        except BaseException:
            if self._embedded:
                leader.announce("leave")
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


def follow(leader: Receiver, make_engine: Callable[[str], Any]) -> int:
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
