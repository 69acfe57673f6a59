"""Sampling by vLLM servers, held in step with the policy that is trained.

Work goes out one completion per request, so that a lost server costs what was in
flight on it and nothing else, and a finished completion can be verified while the
others are still being drawn. A server is believed to be dead when its process is, or
when it draws nothing for `stall_seconds` while it has work; it is then started again,
given the current weights, and the requests that it lost are asked for again.
"""

import collections
import contextlib
import dataclasses
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from rollout.types import Completion, OnFinished, SamplingParams
from rollout.vllm_client import (
    Aborted,
    ServerBusy,
    ServerGone,
    ServerRefused,
    VllmClient,
)
from rollout.vllm_server import ServerFailed, VllmServer
from rollout.weight_sync import WeightTransport

Probe = Callable[[Any, Sequence[int]], np.ndarray]
log = logging.getLogger(__name__)

# Mean absolute difference of log-probs that rounding explains. Measured between vLLM
# and a float32 forward: 2e-6 and 0.013.
PROBE_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.02}
_PROBE_TOKENS = 32
_BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)


class OutOfStep(RuntimeError):
    """A server does not serve the policy that was published to it."""


@dataclasses.dataclass(slots=True, eq=False)
class _Member:
    """A server and what is known of it. `lock` is held while it is updated or mended.

    Attributes:
      process: None where the server is somebody else's.
      epoch: goes up with each restart, so that an old fault is not acted on twice.
    """

    client: VllmClient
    process: VllmServer | None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    connected: bool = False
    up: bool = False
    dead: bool = False
    epoch: int = 0
    pending: int = 0
    restarts: int = 0
    progress: tuple[float, float] = (-1.0, 0.0)


class VllmSampler:
    """A `Sampler` over one or several vLLM servers."""

    def __init__(
        self,
        *,
        servers: Sequence[VllmServer] = (),
        urls: Sequence[str] = (),
        api_key: str = "",
        transport: WeightTransport,
        probe: Probe,
        probe_prompt: Sequence[int],
        probe_tolerance: float,
        max_model_len: int,
        in_flight: Literal["abort", "keep"] = "abort",
        concurrency: int = 255,
        start_seconds: float = 900.0,
        sync_seconds: float = 300.0,
        stall_seconds: float = 120.0,
        max_restarts: int = 3,
    ):
        """Starts the servers; the first `publish` waits for them.

        Args:
          servers: not yet started; they end with this process.
          urls: servers that run already. They are attached to, and live on.
          api_key: of the servers at `urls`.
          transport: how weights reach them.
          probe: the trainer's own log-probs of a sequence under given parameters at
            temperature 1, `float32 [n]`, entry t for producing token t (entry 0 is not
            looked at).
          probe_prompt: long enough to fill some blocks of the key-value cache.
          probe_tolerance: largest mean difference after a sync, in nats.
          max_model_len: longest prompt and completion together.
          in_flight: what a publish does to requests in flight: "abort" drops and
            repeats them, "keep" continues them under the new weights.
          concurrency: requests at a time per server; one slot fewer than the server has
            leaves room for the probe.
          start_seconds: for a server to come up.
          sync_seconds: for each phase of a weight update.
          stall_seconds: without a token while there is work, before a server counts as
            hung.
          max_restarts: per server, between two publishes.
        """
        self._transport = transport
        self._probe = probe
        self._probe_prompt = list(probe_prompt)
        self._probe_tolerance = probe_tolerance
        self._max_model_len = max_model_len
        self._in_flight = in_flight
        self._concurrency = concurrency
        self._start_seconds = start_seconds
        self._sync_seconds = sync_seconds
        self._stall_seconds = stall_seconds
        self._max_restarts = max_restarts
        # A label names the run too: two trainers on one server must not pass unseen.
        self._run = secrets.token_hex(4)
        self._version = -1
        self._current: dict[str, Any] | None = None
        self._changed = threading.Condition()
        self._fatal: Exception | None = None
        self._closed = False
        self._metrics: dict[str, float] = {}
        self._restarts = 0
        self._members = [
            _Member(VllmClient(url, api_key=api_key), None) for url in urls
        ]
        try:
            for server in servers:
                server.start()
                client = VllmClient(server.url, api_key=server.spec.api_key)
                self._members.append(_Member(client, server))
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._watch, daemon=True).start()

    # -- the protocol ----------------------------------------------------------------

    @property
    def version(self) -> int:
        return self._version

    def metrics(self) -> dict[str, float]:
        """Figures of the last publish, and the restarts so far."""
        return self._metrics | {"sampler/restarts": float(self._restarts)}

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        """See `Sampler.sample`. May be called from several threads.

        Raises:
          ServerFailed: no server is left, and why.
          ServerRefused: a server turned a request down, in its words.
        """
        if self._current is None:
            raise RuntimeError("publish a policy before sampling from it")
        for i, prompt in enumerate(prompts):
            if not 0 < len(prompt) <= self._max_model_len - params.max_tokens:
                raise ValueError(
                    f"prompt {i} has {len(prompt)} tokens; with {params.max_tokens} to"
                    f" draw, 1 to {self._max_model_len - params.max_tokens} fit"
                )
        todo = collections.deque(
            (i, j) for i in range(len(prompts)) for j in range(params.n)
        )
        results: list[list[Completion]] = [[None] * params.n for _ in prompts]
        finished: queue.SimpleQueue = queue.SimpleQueue()
        stopped = threading.Event()

        def work():
            while not stopped.is_set():
                try:
                    i, j = todo.popleft()
                except IndexError:
                    return
                try:
                    draw_seed = _completion_seed(seed, i, j)
                    done = self._draw(prompts[i], params, draw_seed, stopped)
                    finished.put((i, j, done))
                except Exception as error:
                    finished.put(error)
                    return

        slots = self._concurrency * len(self._members)
        for _ in range(min(slots, len(todo))):
            threading.Thread(target=work, daemon=True).start()
        try:
            for _ in range(len(prompts) * params.n):
                item = finished.get()
                if isinstance(item, Exception):
                    raise item
                i, j, completion = item
                results[i][j] = completion
                if on_finished is not None:
                    on_finished(i, j, completion)
        except BaseException:
            stopped.set()
            for member in self._members:
                member.client.cut()
            raise
        return results

    def publish(self, params: Any, version: int) -> None:
        """Serves `params` as `version` on every server, and proves it on each.

        Raises:
          OutOfStep: a server's log-probs are not those of `params`.
          ServerRefused, ServerFailed: an update was turned down, or no server is left.
          OSError: the weights could not be written; the servers keep the old ones.
        """
        begin = time.monotonic()
        label = f"{self._run}:{version}"
        with contextlib.ExitStack() as nobody_loads:
            for member in self._members:
                nobody_loads.enter_context(member.lock)
            self._current = self._transport.stage(params, label)
        written = time.monotonic()
        for member in self._members:
            member.restarts = 0
        self._on_each(self._bring_up_to_date)
        self._raise_if_none_left()
        self._version = version
        synced = time.monotonic()
        self._metrics = {
            "sampler/write_seconds": written - begin,
            "sampler/update_seconds": synced - written,
            **self._check_probe(params, version),
            "sampler/publish_seconds": time.monotonic() - begin,
        }

    def close(self) -> None:
        """Ends the servers that were started here; the others go on serving."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        for member in self._members:
            member.client.cut()
        self._on_each(lambda member: member.process and member.process.stop())
        self._transport.close()

    # -- drawing ---------------------------------------------------------------------

    def _draw(self, prompt, params, seed, stopped) -> Completion:
        """One completion, from whichever server, asked for again until it is there."""
        attempts = 0
        while True:
            member, epoch = self._acquire()
            try:
                return member.client.generate(
                    prompt, params, seed=seed, version_of=self._version_of
                )
            except (ServerBusy, Aborted):
                problem = None
            except ServerGone as error:
                problem = error
            except ServerRefused as error:
                if error.status < 500:
                    raise
                problem = error
            finally:
                with self._changed:
                    member.pending -= 1
                    self._changed.notify()
            if stopped.is_set() or self._closed:
                raise ServerGone("sampling was stopped")
            if problem is not None:
                attempts += 1
                if attempts > self._max_restarts + 2:
                    raise ServerFailed(f"asked {attempts} times: {problem}")
                if not self._healthy(member):
                    self._report(member, epoch, problem)
            time.sleep(_BACKOFF_SECONDS[min(attempts, len(_BACKOFF_SECONDS) - 1)])

    def _acquire(self) -> tuple[_Member, int]:
        """The least busy server with a free slot, waiting for one if need be."""
        with self._changed:
            while True:
                if self._fatal is not None:
                    raise self._fatal
                if self._closed:
                    raise ServerGone("the sampler is closed")
                free = [
                    member
                    for member in self._members
                    if member.up and member.pending < self._concurrency
                ]
                if free:
                    member = min(free, key=lambda m: m.pending)
                    if member.pending == 0:
                        member.progress = (-1.0, time.monotonic())
                    member.pending += 1
                    return member, member.epoch
                self._changed.wait(1.0)

    def _version_of(self, label: str) -> int:
        if not label:
            return self._version
        run, _, version = label.rpartition(":")
        if run != self._run:
            raise OutOfStep(
                f"a server drew tokens with weights {label!r}, which this run did not"
                " publish: is another trainer feeding it?"
            )
        return int(version)

    # -- weights ---------------------------------------------------------------------

    def _bring_up_to_date(self, member: _Member) -> None:
        """Connects where needed and pushes the current weights, mending on the way."""
        with member.lock:
            while not member.dead:
                try:
                    if not member.connected:
                        self._connect(member)
                    member.client.update(
                        self._current,
                        self._current["version"],
                        mode=self._in_flight,
                        timeout=self._sync_seconds,
                    )
                except (ServerGone, ServerBusy) as error:
                    self._restart(member, error)
                    continue
                with self._changed:
                    member.up = True
                    member.progress = (-1.0, time.monotonic())
                    self._changed.notify_all()
                return

    def _connect(self, member: _Member) -> None:
        if member.process is not None:
            member.process.wait_ready(self._start_seconds)
        else:
            _wait_for(member.client, self._start_seconds)
        member.client.probe(
            max_model_len=self._max_model_len,
            needs_versions=self._in_flight == "keep",
        )
        body = {"init_info": self._transport.hello()}
        member.client.call(
            "POST", "/init_weight_transfer_engine", body, timeout=self._sync_seconds
        )
        member.connected = True

    def _check_probe(self, params: Any, version: int) -> dict[str, float]:
        draw = SamplingParams(
            max_tokens=_PROBE_TOKENS, stop_token_ids=(), ignore_stop=True
        )
        means, maxima = [], []
        for member in self._members:
            if not member.up:
                continue
            # The ordinary path, cached prefix and all: that is what must be right.
            answer = member.client.generate(
                self._probe_prompt,
                draw,
                seed=0,
                version_of=self._version_of,
                timeout=self._sync_seconds,
            )
            served = answer.sampler_logprobs
            token_ids = [*self._probe_prompt, *answer.token_ids.tolist()]
            own = np.asarray(self._probe(params, token_ids))[-len(served) :]
            gap = np.abs(own - served)
            if not gap.mean() <= self._probe_tolerance:
                worst = int(gap.argmax())
                raise OutOfStep(
                    f"{member.client.url} does not serve version {version}: log-probs"
                    f" of {len(served)} probe tokens differ by {gap.mean():.3g} on"
                    f" average (bound {self._probe_tolerance:g}); worst: server"
                    f" {served[worst]:.4f}, trainer {own[worst]:.4f}"
                )
            if (answer.versions != version).any():
                raise OutOfStep(
                    f"{member.client.url} reports version {answer.versions.min()} after"
                    f" version {version} was published to it"
                )
            means.append(float(gap.mean()))
            maxima.append(float(gap.max()))
        return {
            "sampler/probe_gap_mean": max(means),
            "sampler/probe_gap_max": max(maxima),
        }

    # -- faults ----------------------------------------------------------------------

    def _healthy(self, member: _Member) -> bool:
        if member.process is not None and member.process.pid is None:
            return False
        try:
            member.client.call("GET", "/health", timeout=5)
        except (ServerGone, ServerBusy, ServerRefused):
            return False
        return True

    def _report(self, member: _Member, epoch: int, error: Exception) -> None:
        """Takes a server out of use and has it mended, once per fault."""
        with self._changed:
            if self._closed or not member.up or member.epoch != epoch:
                return
            member.up = False
            member.epoch += 1
        log.warning("%s: %s; mending it", member.client.url, error)
        member.client.cut()
        threading.Thread(target=self._mend, args=(member, error), daemon=True).start()

    def _mend(self, member: _Member, error: Exception) -> None:
        try:
            with member.lock:
                self._restart(member, error)
            self._bring_up_to_date(member)
            self._raise_if_none_left()
        except Exception as failure:
            with self._changed:
                self._fatal = self._fatal or failure
                self._changed.notify_all()

    def _restart(self, member: _Member, error: Exception) -> None:
        """Replaces a server's process; `member.lock` is held."""
        member.connected = False
        if self._closed:
            raise ServerGone("the sampler is closed")
        member.restarts += 1
        if member.restarts > self._max_restarts:
            member.dead = True
            log.error("%s given up: %s", member.client.url, error)
            if member.process is not None:
                member.process.stop(at_once=True)
            self._last_error = error
            return
        self._restarts += 1
        if member.process is not None:
            member.process.stop(at_once=True)
            member.process.start()
            member.client = VllmClient(
                member.process.url, api_key=member.process.spec.api_key
            )

    def _raise_if_none_left(self) -> None:
        if all(member.dead for member in self._members):
            raise ServerFailed(
                f"no vLLM server is left after {self._max_restarts} restarts each;"
                f" last: {self._last_error}"
            )

    def _watch(self) -> None:
        """Finds servers that have work and draw nothing."""
        while not self._closed:
            time.sleep(min(5.0, self._stall_seconds / 4))
            for member in self._members:
                if not member.up or not member.pending or member.lock.locked():
                    continue
                epoch = member.epoch
                count, since = member.progress
                try:
                    now_count = member.client.tokens_processed(
                        timeout=min(10.0, self._stall_seconds)
                    )
                except (ServerGone, ServerBusy, ServerRefused):
                    now_count = count
                if now_count != count:
                    member.progress = (now_count, time.monotonic())
                elif time.monotonic() - since > self._stall_seconds:
                    silence = f"no token for {self._stall_seconds:.0f} s, it hangs"
                    self._report(member, epoch, ServerGone(silence))

    def _on_each(self, act: Callable[[_Member], Any]) -> None:
        """Runs `act` on all servers side by side; raises the first error."""
        errors: list[BaseException] = []

        def run(member):
            try:
                act(member)
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=run, args=(member,), daemon=True)
            for member in self._members
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def _completion_seed(seed: int, prompt: int, sample: int) -> int:
    words = np.random.SeedSequence([seed, prompt, sample]).generate_state(1)
    return int(words[0] >> 1)


def _wait_for(client: VllmClient, timeout: float) -> None:
    begin = time.monotonic()
    while True:
        try:
            client.call("GET", "/health", timeout=5)
            return
        except (ServerGone, ServerBusy) as error:
            if time.monotonic() - begin > timeout:
                raise ServerFailed(f"no server at {client.url}: {error}") from None
            time.sleep(0.5)
