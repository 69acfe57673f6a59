"""Manages the vLLM servers of a run: which are up, which have room, and restarts.

A server counts as dead when its process has ended, or when it generates no token for
`stall_seconds` while it has work. It is then restarted and updated; a server that the
trainer only attached to is waited for. The sampler passes two callbacks that say what
"attach" and "update" mean.
"""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rollout.vllm.client import (
    LoadFailed,
    ServerBusy,
    ServerGone,
    ServerRefused,
    VllmClient,
)
from rollout.vllm.server import ServerFailed, ServerProcess

_CALLERS = 4  # that sample at the same time, such as a collector and an evaluation
log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class Member:
    """A server and its state."""

    client: VllmClient
    process: ServerProcess | None = None  # None: the trainer only attached to it
    # Held while it is updated or restarted.
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    attached: bool = False  # whether it was checked since it last started
    up: bool = False  # whether it takes requests
    dead: bool = False  # given up for good
    epoch: int = 0  # increases with each fault, so that a fault is handled once
    pending: int = 0  # requests that it holds
    restarts: int = 0  # since the last publish
    # Tokens that it had processed when they last changed, and when they, or a request
    # that ended, last showed it alive.
    progress: tuple[float, float] = (-1.0, 0.0)


class ServerFleet:
    """Servers that start together, share the work, and are restarted one by one."""

    def __init__(
        self,
        *,
        servers: Sequence[ServerProcess] = (),
        urls: Sequence[str] = (),
        api_key: str = "",
        concurrency: int = 255,
        start_seconds: float = 1800.0,
        stall_seconds: float = 120.0,
        max_restarts: int = 3,
    ):
        """Prepares the servers; `start` starts them.

        Args:
          servers: not yet started; they end with this process.
          urls: of running servers to attach to; they live on.
          api_key: of the servers at `urls`.
          concurrency: requests at a time per server. One slot fewer than a server has
            leaves room for a probe.
          start_seconds: for a server to come up.
          stall_seconds: without a token while there is work, before a server counts as
            hung.
          max_restarts: per server, between two calls of `update_all`.
        """
        self._concurrency = concurrency
        self._start_seconds = start_seconds
        self._stall_seconds = stall_seconds
        self.max_restarts = max_restarts
        self._changed = threading.Condition()
        self._fatal: Exception | None = None
        self._last_error: Exception | None = None
        self.closed = False
        self.restarts = 0
        self.members = [Member(VllmClient(url, api_key=api_key)) for url in urls]
        self.members += [
            Member(VllmClient(s.url, api_key=s.spec.api_key), s) for s in servers
        ]
        # Threads are kept: on busy cores, starting 256 of them takes ten seconds.
        self._threads = ThreadPoolExecutor(_CALLERS * self.slots, "vllm-request")

    def start(
        self,
        attach: Callable[[VllmClient], Any],
        update: Callable[[VllmClient], Any],
        check_restarted: Callable[[VllmClient, Any], None],
    ) -> None:
        """Starts the servers; `update_all` waits for them.

        Args:
          attach: checks a server that has just come up.
          update: loads the current weights into a server.
          check_restarted: checks what `update` returned after a restart.
        """
        self._attach, self._update = attach, update
        self._check_restarted = check_restarted
        for member in self.members:
            if member.process is not None:
                self._start(member, member.process)
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def slots(self) -> int:
        """Requests that all servers take at a time."""
        return self._concurrency * len(self.members)

    def run(self, job: Callable[[], None], times: int) -> None:
        """Calls `job`, which may not raise, each in its own thread."""
        try:
            for _ in range(times):
                self._threads.submit(job)
        except RuntimeError:
            raise ServerGone("sampling was stopped") from None

    def update_all(self) -> list[tuple[VllmClient, Any]]:
        """Updates all servers in parallel.

        Returns:
          Each living server with the result of `update`.

        Raises:
          ServerFailed: none is left.
          Exception: the first that `attach` or `update` raised.
        """
        for member in self.members:
            member.restarts = 0
        results = self._on_each(self._bring_up)
        self._raise_if_none_left()
        return [(m.client, result) for m, result in results.items() if not m.dead]

    @contextlib.contextmanager
    def slot(
        self, *, unless: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[Member, int] | None]:
        """Waits for a place on the least busy server; yields it and its epoch.

        Args:
          unless: if it returns True, yields None.

        Raises:
          ServerFailed: no server is left. ServerGone: the fleet was closed.
        """
        with self._changed:
            while not (free := self._with_room()) and not unless():
                self._changed.wait(1.0)
            member = None
            if not unless():
                member = min(free, key=lambda m: m.pending)
                if member.pending == 0:
                    member.progress = (-1.0, time.monotonic())
                member.pending += 1
                epoch = member.epoch
        if member is None:
            yield None
            return
        try:
            yield member, epoch
        finally:
            with self._changed:
                member.pending -= 1
                # The counters may come late when a server is busiest.
                member.progress = member.progress[0], time.monotonic()
                self._changed.notify()

    def _with_room(self) -> list[Member]:
        if self._fatal is not None:
            raise self._fatal
        if self.closed:
            raise ServerGone("sampling was stopped")
        return [m for m in self.members if m.up and m.pending < self._concurrency]

    def report(self, member: Member, epoch: int, error: Exception) -> None:
        """Restarts a server if it is not healthy, once per fault."""
        if not self._healthy(member):
            self._take_out(member, epoch, error)

    def cut(self) -> None:
        """Breaks every request's connection."""
        for member in self.members:
            member.client.cut()

    def close(self) -> None:
        """Ends the servers that were started here; the others keep serving."""
        with self._changed:
            if self.closed:
                return
            self.closed = True
            self._changed.notify_all()
        for member in self.members:
            member.client.close()
        self._threads.shutdown(wait=False)
        self._on_each(_stop)

    # -- restarts --------------------------------------------------------------------

    def _bring_up(self, member: Member) -> Any:
        """Waits for a server, checks and updates it; restarts it on a fault."""
        with member.lock:
            while not member.dead:
                try:
                    if not member.attached:
                        self._wait_for(member)
                        self._attach(member.client)
                        member.attached = True
                    result = self._update(member.client)
                except (ServerGone, ServerBusy) as error:
                    self._restart(member, error)
                    continue
                except LoadFailed as error:
                    self._restart(member, error)
                    raise
                except ServerRefused as error:
                    if not error.internal or self._healthy(member):
                        raise
                    if member.process is not None and not member.attached:
                        # A server that dies of its first request would die again.
                        cause = member.process.last_error()
                        raise ServerFailed(f"{error}: {cause}") from None
                    self._restart(member, error)
                    continue
                with self._changed:
                    member.up = True
                    member.progress = (-1.0, time.monotonic())
                    self._changed.notify_all()
                return result

    def _wait_for(self, member: Member) -> None:
        if member.process is not None:
            member.process.wait_ready(self._start_seconds)
            return
        deadline = time.monotonic() + self._start_seconds
        while True:
            try:
                member.client.call("GET", "/health", timeout=5)
                return
            except (ServerGone, ServerBusy) as error:
                if self.closed or time.monotonic() > deadline:
                    url = member.client.url
                    raise ServerFailed(f"no server at {url}: {error}") from None
                time.sleep(0.5)

    def _healthy(self, member: Member) -> bool:
        if member.process is not None and member.process.pid is None:
            return False
        try:
            member.client.call("GET", "/health", timeout=5)
        except (ServerGone, ServerBusy, ServerRefused):
            return False
        return True

    def _take_out(self, member: Member, epoch: int, error: Exception) -> None:
        with self._changed:
            if self.closed or not member.up or member.epoch != epoch:
                return
            member.up = False
            member.epoch += 1
        log.warning("restarting a server: %s", error)
        member.client.cut()
        run = threading.Thread(target=self._replace, args=(member, error), daemon=True)
        run.start()

    def _replace(self, member: Member, error: Exception) -> None:
        try:
            with member.lock:
                self._restart(member, error)
            result = self._bring_up(member)
            if not member.dead:
                self._check_restarted(member.client, result)
            self._raise_if_none_left()
        except Exception as failure:
            with self._changed:
                self._fatal = self._fatal or failure
                self._changed.notify_all()

    def _restart(self, member: Member, error: Exception) -> None:
        """Starts a server's process again, or gives it up; `member.lock` is held."""
        if self.closed:
            raise ServerGone("sampling was stopped")
        member.up = member.attached = False
        member.restarts += 1
        if member.restarts > self.max_restarts:
            log.error("giving a server up: %s", error)
            member.dead = True
            self._last_error = error
            if member.process is not None:
                member.process.stop(at_once=True)
            return
        self.restarts += 1
        if member.process is not None:
            member.process.stop(at_once=True)
            self._start(member, member.process)

    def _start(self, member: Member, process: ServerProcess) -> None:
        process.start()
        member.client = VllmClient(process.url, api_key=process.spec.api_key)

    def _raise_if_none_left(self) -> None:
        if all(member.dead for member in self.members):
            raise ServerFailed(
                f"no vLLM server is left after {self.max_restarts} restarts each;"
                f" last: {self._last_error}"
            )

    def _watch(self) -> None:
        """Finds servers that have work and generate nothing."""
        while not self.closed:
            time.sleep(min(5.0, self._stall_seconds / 4))
            for member in self.members:
                if not member.up or not member.pending or member.lock.locked():
                    continue
                epoch, (count, since) = member.epoch, member.progress
                try:
                    now = member.client.tokens_processed(
                        timeout=min(10.0, self._stall_seconds)
                    )
                except (ServerGone, ServerBusy, ServerRefused):
                    now = count
                if now != count:
                    member.progress = (now, time.monotonic())
                elif time.monotonic() - since > self._stall_seconds:
                    silence = f"no token for {self._stall_seconds:.0f} s, it hangs"
                    error = ServerGone(f"{member.client.url}: {silence}")
                    self._take_out(member, epoch, error)

    def _on_each(self, act: Callable[[Member], Any]) -> dict[Member, Any]:
        """Calls `act` on all servers in parallel; raises the first error."""
        with ThreadPoolExecutor(max(1, len(self.members))) as pool:
            calls = {member: pool.submit(act, member) for member in self.members}
        return {member: call.result() for member, call in calls.items()}


def _stop(member: Member) -> None:
    if member.process is not None:
        member.process.stop()
