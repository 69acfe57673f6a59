"""Runs calls of the engine in all processes of a run.

The leader (process 0) selects problems, verifies, filters and packs. It uses devices
only in the joint methods of its engine, whose arguments are host data. The leader
announces each call of a joint method to the followers and then makes it, so that all
processes run the same programs in the same order. `follow` is the main loop of a
follower.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rl.processes.group import Follower

Method = TypeVar("Method", bound=Callable)

_NAMES: set[str] = set()  # of all joint methods


def joint(method: Method) -> Method:
    """Makes a method of an engine joint: the leader announces it to the followers.

    The engine has an attribute `processes`. In the only process of a run, and in
    followers, the call itself is unchanged.
    """
    name = method.__name__
    _NAMES.add(name)

    @functools.wraps(method)
    def call(self, /, *args, **kwargs):
        self.processes.announce(name, *args, **kwargs)
        return method(self, *args, **kwargs)

    return cast(Method, call)


class _Left(Exception):
    """Ends `sample` in a follower, because `sample` raised an error in the leader."""


def follow(leader: Follower, make_engine: Callable[[str], Any]) -> int:
    """Executes the leader's commands until the run ends; returns the exit status.

    `make_engine` receives the leader's config as JSON.
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
        elif name in _NAMES:
            getattr(engine, name)(*args, **kwargs)
        else:
            raise ValueError(
                f"process 0 sent the unknown command {name!r}; start all processes with"
                " the same code"
            )
