"""A run of several processes: the leader announces each call of the engine to all.

The leader (process 0) draws problems, verifies, filters and packs; whatever touches
devices is a call of its engine, with plain host data as arguments. `JointEngine` sends
the call to the other processes and makes it too, so that all run the same programs in
the same order; `follow` is the whole life of the others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rl.engine import Engine
from rl.hosts.peers import Alone, Follower, Leader
from rl.types import Batch, Hyper
from rollout.types import Completion, OnFinished, OnPause, SamplingParams, SoFar


class JointEngine:
    """An `Engine` of all processes, for the leader to use as it would its own."""

    def __init__(self, engine: Engine, leader: Leader, *, embedded: bool):
        """
        Args:
          engine: the leader's own part.
          leader: tells the others.
          embedded: whether all processes sample together; else the leader alone does,
            from servers.
        """
        self._engine, self._leader, self._embedded = engine, leader, embedded

    @property
    def updates(self) -> int:
        """See `Engine.updates`."""
        return self._engine.updates

    @property
    def skipped(self) -> tuple[int, int]:
        """See `Engine.skipped`."""
        return self._engine.skipped

    @property
    def saved(self) -> int:
        """See `Engine.saved`."""
        return self._engine.saved

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
        """See `Engine.sample`. All leave it together, at the pause that says so.

        A pause is between two programs, and comes alike in all processes.
        """

        def own(on_pause: OnPause | None) -> list[list[Completion]]:
            return self._engine.sample(
                prompts,
                params,
                seed=seed,
                begun=begun,
                on_finished=on_finished,
                on_pause=on_pause,
            )

        if not self._embedded:
            return own(on_pause)

        def pause() -> bool:
            enough = on_pause is not None and bool(on_pause())
            self._leader.announce("enough" if enough else "stay")
            return enough

        self._leader.announce("sample", prompts, params, seed=seed, begun=begun)
        try:
            return own(pause)
        except BaseException:
            self._leader.announce("leave")
            raise

    def update(
        self, mini_batches: Sequence[Sequence[Batch]], hypers: Sequence[Hyper]
    ) -> list[dict[str, Any]]:
        """See `Engine.update`."""
        return self._all("update", mini_batches, hypers)

    def score(self, batch: Batch, hyper: Hyper) -> np.ndarray:
        """See `Engine.score`."""
        return self._all("score", batch, hyper)

    def publish(self, version: int) -> None:
        """See `Engine.publish`."""
        self._all("publish", version)

    def sampler_metrics(self) -> dict[str, float]:
        """Of the leader's sampler."""
        return self._engine.sampler_metrics()

    def save(
        self,
        step: int,
        loop: Mapping[str, Any],
        *,
        healthy: bool = True,
        score: float | None = None,
    ) -> None:
        """See `Engine.save`."""
        self._all("save", step, loop, healthy=healthy, score=score)

    def record_score(self, step: int, score: float) -> None:
        """See `Engine.record_score`; the leader writes it."""
        self._engine.record_score(step, score)

    def finish_saving(self) -> None:
        """See `Engine.finish_saving`; for the leader's part, which ends last."""
        self._engine.finish_saving()

    def restore(self) -> tuple[int, dict[str, Any]] | None:
        """See `Engine.restore`."""
        return self._all("restore")

    def export(self, folder: str, *, card: str, dtype: str, unhealthy: bool) -> bool:
        """See `Engine.export`."""
        return self._all("export", folder, card=card, dtype=dtype, unhealthy=unhealthy)

    def close(self) -> None:
        """See `Engine.close`."""
        self._all("close")

    def _all(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._leader.announce(name, *args, **kwargs)
        return getattr(self._engine, name)(*args, **kwargs)


def lead(
    peers: Alone | Leader,
    make_engine: Callable[[], Engine],
    *,
    config: str,
    embedded: bool,
) -> Engine | JointEngine:
    """Makes the engine, in every process.

    Args:
      peers: of this process.
      make_engine: makes this process's part.
      config: as JSON; every process must have the same.
      embedded: see `JointEngine`.
    """
    if not isinstance(peers, Leader):
        return make_engine()
    peers.announce("begin", config)
    return JointEngine(make_engine(), peers, embedded=embedded)


class _Left(Exception):
    """The leader has left a call of `sample` in the middle."""


def follow(peers: Follower, make_engine: Callable[[str], Engine]) -> int:
    """Does what the leader announces until it ends the run.

    Args:
      peers: of this process.
      make_engine: makes this process's part, given the leader's config as JSON.

    Returns:
      The exit status of the run.
    """

    def pause() -> bool:
        word, *_ = peers.receive()
        if word == "leave":
            raise _Left
        return word == "enough"

    while True:
        name, args, kwargs = peers.receive()
        if name == "end":
            return args[0]
        if name == "begin":
            engine = make_engine(*args)
        elif name == "sample":
            try:
                engine.sample(*args, **kwargs, on_pause=pause)
            except _Left:
                continue
        else:
            getattr(engine, name)(*args, **kwargs)
