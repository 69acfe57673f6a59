"""The vLLM servers of a run: which are up, which has room, and mending what breaks.

A server is believed to be dead when its process is, or when it draws nothing for
`stall_seconds` while it has work. It is then started again and brought up to date; a
server that somebody else runs is waited for instead. What "up to date" means is the
sampler's business: it gives the fleet two callbacks.
"""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rollout.vllm.client import (
    LoadFailed,
    ServerBusy,
    ServerGone,
    ServerRefused,
    VllmClient,
)
from rollout.vllm.crew import Crew
from rollout.vllm.server import ServerFailed, VllmServer

log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class Member:
    """A server and what is known of it.

    Attributes:
      process: None where the server is somebody else's.
      lock: held while it is updated or mended.
      greeted: whether it was looked over since it last started.
      up: whether it takes requests.
      dead: given up for good.
      epoch: goes up with each fault, so that an old one is not acted on twice.
      pending: requests that it holds.
      restarts: since the last publish.
      progress: tokens that it had processed when they last changed, and when they, or
        a request that ended, last showed it alive.
    """

    client: VllmClient
    process: VllmServer | None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    greeted: bool = False
    up: bool = False
    dead: bool = False
    epoch: int = 0
    pending: int = 0
    restarts: int = 0
    progress: tuple[float, float] = (-1.0, 0.0)


class Fleet:
    """Servers that start together, share the work, and are mended one by one."""

    def __init__(
        self,
        *,
        servers: Sequence[VllmServer],
        urls: Sequence[str],
        api_key: str,
        greet: Callable[[VllmClient], None],
        bring_up_to_date: Callable[[VllmClient], Any],
        mended: Callable[[VllmClient, Any], None],
        concurrency: int,
        start_seconds: float,
        stall_seconds: float,
        max_restarts: int,
    ):
        """Starts the servers; `update` waits for them.

        Args:
          greet: looks a server over once it is there.
          bring_up_to_date: gives it the current weights.
          mended: judges what that returned after a restart.
          Others: see `VllmSampler`.
        """
        self._greet = greet
        self._bring_up_to_date = bring_up_to_date
        self._mended = mended
        self._concurrency = concurrency
        self._start_seconds = start_seconds
        self._stall_seconds = stall_seconds
        self._max_restarts = max_restarts
        self._changed = threading.Condition()
        self._fatal: Exception | None = None
        self._last_error: Exception | None = None
        self.closed = False
        self.crew = Crew()
        self.restarts = 0
        self.members = [Member(VllmClient(url, api_key=api_key), None) for url in urls]
        try:
            for server in servers:
                server.start()
                client = VllmClient(server.url, api_key=server.spec.api_key)
                self.members.append(Member(client, server))
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def slots(self) -> int:
        """Requests that all servers take at a time."""
        return self._concurrency * len(self.members)

    def update(self) -> list[tuple[VllmClient, Any]]:
        """Brings all servers up to date, side by side.

        Returns:
          Each living server with what `bring_up_to_date` returned.

        Raises:
          ServerFailed: none is left. Whatever `greet` or `bring_up_to_date` raise.
        """
        for member in self.members:
            member.restarts = 0
        results = self._on_each(self._up_to_date)
        self._raise_if_none_left()
        return [(m.client, result) for m, result in results.items() if not m.dead]

    @contextlib.contextmanager
    def slot(
        self, *, unless: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[Member, int] | None]:
        """A place on the least busy server, with the server's epoch.

        Args:
          unless: whether it is no longer wanted; then there is none.

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
                # Its counters may be slow to come when it is busiest.
                member.progress = member.progress[0], time.monotonic()
                self._changed.notify()

    def _with_room(self) -> list[Member]:
        if self._fatal is not None:
            raise self._fatal
        if self.closed:
            raise ServerGone("sampling was stopped")
        return [m for m in self.members if m.up and m.pending < self._concurrency]

    def report(self, member: Member, epoch: int, error: Exception) -> None:
        """Has a server mended if it is not well; once per fault, whoever reports it."""
        if not self._healthy(member):
            self._take_out(member, epoch, error)

    def cut(self) -> None:
        """Breaks off every request."""
        for member in self.members:
            member.client.cut()

    def close(self) -> None:
        """Ends the servers that were started here; the others go on serving."""
        with self._changed:
            if self.closed:
                return
            self.closed = True
            self._changed.notify_all()
        self.cut()
        self.crew.close()
        self._on_each(lambda member: member.process and member.process.stop())

    # -- mending ---------------------------------------------------------------------

    def _up_to_date(self, member: Member) -> Any:
        with member.lock:
            while not member.dead:
                try:
                    if not member.greeted:
                        self._wait_for(member)
                        self._greet(member.client)
                        member.greeted = True
                    result = self._bring_up_to_date(member.client)
                except (ServerGone, ServerBusy) as error:
                    self._restart(member, error)
                    continue
                except LoadFailed as error:
                    self._restart(member, error)
                    raise
                except ServerRefused as error:
                    if not error.internal or self._healthy(member):
                        raise
                    if member.process is not None and not member.greeted:
                        # A server that dies of its first request dies of each.
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
                if time.monotonic() > deadline:
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
        log.warning("mending a server: %s", error)
        member.client.cut()
        threading.Thread(target=self._mend, args=(member, error), daemon=True).start()

    def _mend(self, member: Member, error: Exception) -> None:
        try:
            with member.lock:
                self._restart(member, error)
            result = self._up_to_date(member)
            if not member.dead:
                self._mended(member.client, result)
            self._raise_if_none_left()
        except Exception as failure:
            with self._changed:
                self._fatal = self._fatal or failure
                self._changed.notify_all()

    def _restart(self, member: Member, error: Exception) -> None:
        """Replaces a server's process, or gives it up; `member.lock` is held."""
        if self.closed:
            raise ServerGone("sampling was stopped")
        member.up = member.greeted = False
        member.restarts += 1
        if member.restarts > self._max_restarts:
            log.error("giving a server up: %s", error)
            member.dead = True
            self._last_error = error
            if member.process is not None:
                member.process.stop(at_once=True)
            return
        self.restarts += 1
        if member.process is not None:
            member.process.stop(at_once=True)
            member.process.start()
            key = member.process.spec.api_key
            member.client = VllmClient(member.process.url, api_key=key)

    def _raise_if_none_left(self) -> None:
        if all(member.dead for member in self.members):
            raise ServerFailed(
                f"no vLLM server is left after {self._max_restarts} restarts each;"
                f" last: {self._last_error}"
            )

    def _watch(self) -> None:
        """Finds servers that have work and draw nothing."""
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
        """Runs `act` on all servers side by side; raises the first error."""
        results: dict[Member, Any] = {}
        errors: list[BaseException] = []

        def run(member):
            try:
                results[member] = act(member)
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=run, args=(member,), daemon=True)
            for member in self.members
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results
