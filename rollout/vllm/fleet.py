"""Manages the vLLM servers of a run: their state, free slots and restarts.

A server is restarted and updated if it does not answer, could not load weights, or has
requests but processes no token for `stall_seconds`. A server given by its URL is not
restarted; the fleet instead waits up to 30 minutes for its answer. A server that
needs more than `max_restarts` restarts or waits per publish is not used again. The run
ends when no server is left.
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
    ServerBroken,
    ServerBusy,
    ServerGone,
    ServerRefused,
    VllmClient,
)
from rollout.vllm.server import ServerFailed, ServerProcess

_START_SECONDS = 1800.0  # maximum time until a server answers
_CALLERS = 4  # concurrent calls of `sample`, such as training and an evaluation
log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class Member:
    client: VllmClient
    process: ServerProcess | None = None  # None for a server given by its URL
    # Held while the server is updated or restarted.
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    attached: bool = False  # whether it was checked since its last start
    up: bool = False  # whether it accepts requests
    dead: bool = False  # whether all restarts are used up
    epoch: int = 0  # number of faults, so that each fault is handled once
    pending: int = 0  # number of running requests
    restarts: int = 0  # restarts since the last publish
    # The last known number of processed tokens, and the time when the number last
    # changed or a request ended.
    progress: tuple[float, float] = (-1.0, 0.0)


class ServerFleet:
    def __init__(
        self,
        *,
        servers: Sequence[ServerProcess] = (),
        urls: Sequence[str] = (),
        api_key: str = "",
        concurrency: int = 255,
        stall_seconds: float = 120.0,
        max_restarts: int = 3,
    ):
        """Creates a fleet without starting its servers.

        The `servers` end with this process. The fleet never ends the servers at `urls`,
        whose key is `api_key`. `concurrency` is the maximum number of concurrent
        requests per server; one fewer than the server's slots leaves a slot for the
        probe.
        """
        self._concurrency = concurrency
        self._stall_seconds = stall_seconds
        self.max_restarts = max_restarts
        self._changed = threading.Condition()
        self._fatal: Exception | None = None
        self._last_error: Exception | None = None
        self.closed = False
        self.restarts = 0
        clients = [VllmClient(url, api_key=api_key) for url in urls]
        # Two updates of one server at the same time could mix versions.
        self.members = [Member(c) for c in {c.url: c for c in clients}.values()]
        self.members += [
            Member(VllmClient(s.url, api_key=s.spec.api_key), s) for s in servers
        ]
        # Threads are reused: on busy cores, starting 256 of them takes ten seconds.
        self._threads = ThreadPoolExecutor(_CALLERS * self.slots, "vllm-request")

    def start(
        self,
        attach: Callable[[VllmClient], Any],
        update: Callable[[VllmClient], Any],
        check_restarted: Callable[[VllmClient, Any], None],
    ) -> None:
        """Starts the servers; `update_all` waits for them.

        `attach` checks a server after each start, and `update` loads the current
        weights. `check_restarted` checks a restarted server, given the result of
        `update`.
        """
        self._attach, self._update = attach, update
        self._check_restarted = check_restarted
        for member in self.members:
            if member.process is not None:
                self._start(member, member.process)
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def slots(self) -> int:
        """Returns the maximum number of concurrent requests of all servers."""
        return self._concurrency * len(self.members)

    def run(self, job: Callable[[], None], times: int) -> None:
        """Starts `times` parallel calls of `job`; raises ServerGone after `close`."""
        try:
            for _ in range(times):
                self._threads.submit(job)
        except RuntimeError:
            raise ServerGone("sampling was stopped") from None

    def update_all(self) -> list[tuple[VllmClient, Any]]:
        """Waits for all servers and updates them in parallel.

        Returns the client and the result of `update` for each server that is not dead.
        Raises ServerFailed if a server does not start or answer, or if none is left,
        and other errors of `attach` or `update` that a restart cannot solve.
        """
        for member in self.members:
            member.restarts = 0
        results = self._on_each(self._bring_up)
        self._raise_if_none_left()
        found = zip(self.members, results, strict=True)
        return [(member.client, result) for member, result in found if not member.dead]

    @contextlib.contextmanager
    def slot(self, unless: Callable[[], bool]) -> Iterator[tuple[Member, int] | None]:
        """Waits for a free slot; yields the least busy server and the server's epoch.

        Yields None if `unless` returns True. Raises ServerGone after `close`, or the
        error of a failed restart, such as ServerFailed if no server is left.
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
                # A busy server may be late with its token counters.
                member.progress = member.progress[0], time.monotonic()
                self._changed.notify()

    def _with_room(self) -> list[Member]:
        if self._fatal is not None:
            raise self._fatal
        if self.closed:
            raise ServerGone("sampling was stopped")
        return [m for m in self.members if m.up and m.pending < self._concurrency]

    def report(self, member: Member, epoch: int, error: Exception) -> None:
        """Restarts a server after a failed request, unless the server is healthy.

        `epoch` is the server's epoch when the request was sent. Of several reports with
        the same epoch, only the first restarts the server.
        """
        if not member.client.healthy():
            self._take_out(member, epoch, error)

    def cut(self) -> None:
        for member in self.members:
            member.client.cut()

    def close(self) -> None:
        with self._changed:
            if self.closed:
                return
            self.closed = True
            self._changed.notify_all()
        for member in self.members:
            member.client.close()
        self._threads.shutdown(wait=False)

        def stop(member: Member) -> None:
            if member.process is not None:
                member.process.stop()

        self._on_each(stop)

    # -- restarts --------------------------------------------------------------------

    def _bring_up(self, member: Member) -> Any:
        """Waits for a server, checks it after a start, and updates it.

        Restarts a server that does not answer. Returns the result of `update`, or None
        if all restarts are used up.
        """
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
                except ServerBroken as error:
                    if member.client.healthy():
                        raise
                    if member.process is not None and not member.attached:
                        # A server that fails on its first request would fail again.
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
            member.process.wait_ready(_START_SECONDS)
            return
        deadline = time.monotonic() + _START_SECONDS
        if not member.client.healthy():
            log.warning("%s: waiting for a vLLM server", member.client.url)
        while not member.client.healthy():
            if self.closed or time.monotonic() > deadline:
                raise ServerFailed(
                    f"{member.client.url}: no vLLM server answers; start one at this"
                    " address, or correct config.rollout.vllm.url or --url"
                )
            time.sleep(0.5)

    def _take_out(self, member: Member, epoch: int, error: Exception) -> None:
        with self._changed:
            if self.closed or not member.up or member.epoch != epoch:
                return
            member.up = False
            member.epoch += 1
        action = "waiting for it" if member.process is None else "restarting it"
        if member.restarts >= self.max_restarts:
            action = "no restarts or waits are left"
        log.warning("a vLLM server failed, %s: %s", action, error)
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
        """Restarts a server or marks it dead; the caller must hold `member.lock`."""
        if self.closed:
            raise ServerGone("sampling was stopped")
        member.up = member.attached = False
        member.restarts += 1
        if member.restarts > self.max_restarts:
            self._last_error = error
            member.dead = True
            log.error(
                "a vLLM server is not used any more, after %d restarts or waits; last"
                " error: %s",
                self.max_restarts,
                error,
            )
        else:
            self.restarts += 1
        if member.process is not None:
            member.process.stop(at_once=True)
            if not member.dead:
                self._start(member, member.process)

    def _start(self, member: Member, process: ServerProcess) -> None:
        process.start()
        member.client = VllmClient(process.url, api_key=process.spec.api_key)

    def _raise_if_none_left(self) -> None:
        if all(member.dead for member in self.members):
            logs = [m.process.log_file for m in self.members if m.process]
            see = f"see {logs[0]}" if logs else "start them again"
            raise ServerFailed(
                f"all vLLM servers failed (restarts or waits of each:"
                f" {self.max_restarts}); last error: {self._last_error}; {see}"
            )

    def _watch(self) -> None:
        """Restarts servers that have requests but process no tokens."""
        while not self.closed:
            time.sleep(min(5.0, self._stall_seconds / 4))
            for member in self.members:
                if not member.up or not member.pending or member.lock.locked():
                    continue
                epoch, (count, since) = member.epoch, member.progress
                timeout = min(10.0, self._stall_seconds)
                try:
                    now = member.client.tokens_processed(timeout=timeout)
                except (ServerGone, ServerBusy, ServerBroken, ServerRefused):
                    now = count
                if now != count:
                    member.progress = (now, time.monotonic())
                elif time.monotonic() - since > self._stall_seconds:
                    silence = f"hangs: no token for {self._stall_seconds:.0f} s"
                    error = ServerGone(f"{member.client.url} {silence}")
                    self._take_out(member, epoch, error)

    def _on_each(self, act: Callable[[Member], Any]) -> list[Any]:
        with ThreadPoolExecutor(max(1, len(self.members))) as pool:
            calls = [pool.submit(act, member) for member in self.members]
        return [call.result() for call in calls]
