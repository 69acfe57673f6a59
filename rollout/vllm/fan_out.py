"""Distributes completions over a fleet of vLLM servers, one completion per request.

If a server fails, only its running requests are repeated.
"""

import collections
import dataclasses
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence

from rollout.seeds import derive
from rollout.types import (
    Completion,
    Completions,
    OnFinished,
    OnPause,
    SamplingParams,
    check_lengths,
    start_completions,
)
from rollout.vllm.client import ServerBroken, ServerBusy, ServerGone
from rollout.vllm.fleet import Member, ServerFleet
from rollout.vllm.server import ServerFailed

_BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
_PAUSE_SECONDS = 0.5
_ABORT_SECONDS = 10


class FanOut:
    """Implements `Sampler` over a fleet of servers of one model."""

    def __init__(
        self,
        fleet: ServerFleet,
        *,
        max_model_len: int,
        version_of: Callable[[str], int] = lambda label: 0,
    ):
        """Samples from `fleet`; `version_of` is that of `VllmClient.generate`."""
        self._fleet, self._max_model_len = fleet, max_model_len
        self._version_of = version_of

    def close(self) -> None:
        self._fleet.close()

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        partial: Completions | None = None,
        on_finished: OnFinished | None = None,
        on_pause: OnPause | None = None,
    ) -> list[list[Completion]]:
        """Implements `Sampler.sample`; several threads can call it.

        Raises:
          ServerFailed: a restart fails, no server is left, or requests fail repeatedly.
          ServerRefused: a server rejected a request; the message has its answer.
          OutOfStep: a server reports no version for a token, or another run's version.
          ServerGone: the sampler was closed.
        """
        check_lengths(prompts, params, self._max_model_len)
        fleet = self._fleet
        results = start_completions(prompts, params, partial)
        todo = collections.deque(
            (i, j)
            for i, completions in enumerate(results)
            for j, completion in enumerate(completions)
            if completion.unfinished
        )
        finished: queue.SimpleQueue = queue.SimpleQueue()
        # `stopped` is set after an error, `ending` after `on_pause` returned True.
        stopped, ending = threading.Event(), threading.Event()
        in_flight: dict[str, Member] = {}  # by request name

        def draw(prompt: Sequence[int], start: Completion, own_seed: int) -> Completion:
            faults = 0
            text = [*prompt, *start.token_ids.tolist()]
            left = params.max_tokens - len(start.token_ids)
            rest = dataclasses.replace(params, max_tokens=left)
            name = secrets.token_hex(8)
            while not ending.is_set():
                with fleet.slot(ending.is_set) as given:
                    if given is None:
                        break
                    member, epoch = given
                    in_flight[name] = member
                    fault: Exception | None = None
                    try:
                        drawn = member.client.generate(
                            text,
                            rest,
                            seed=own_seed,
                            version_of=self._version_of,
                            name=name,
                        )
                        if not drawn.unfinished or ending.is_set():
                            return start.followed_by(drawn)
                    except ServerBusy:
                        pass
                    except (ServerGone, ServerBroken) as error:
                        fault = error
                    finally:
                        del in_flight[name]
                if stopped.is_set():
                    raise ServerGone("sampling was stopped")
                if fault is not None:
                    faults += 1
                    if faults > fleet.max_restarts + 2:
                        raise ServerFailed(
                            f"{faults} requests for one completion failed; see the logs"
                            f" of the vLLM servers; last error: {fault}"
                        )
                    fleet.report(member, epoch, fault)
                time.sleep(_BACKOFF_SECONDS[min(faults, len(_BACKOFF_SECONDS) - 1)])
            return start

        def work() -> None:
            while not (stopped.is_set() or ending.is_set()):
                try:
                    i, j = todo.popleft()
                except IndexError:
                    break
                try:
                    done = draw(prompts[i], results[i][j], derive(seed, i, j))
                except Exception as error:
                    finished.put(error)
                    return
                finished.put((i, j, done))
            finished.put(None)

        def abort() -> None:
            names_of = collections.defaultdict(list)
            for name, member in list(in_flight.items()):
                names_of[member].append(name)
            for member, names in names_of.items():
                try:
                    member.client.abort(names, timeout=_ABORT_SECONDS)
                except (ServerGone, ServerBusy, ServerBroken):
                    continue  # the threads that wait for this server handle the fault

        workers = min(fleet.slots, len(todo))
        fleet.run(work, workers)
        try:
            while workers:
                paused = finished.empty() and on_pause is not None and on_pause()
                if paused and not ending.is_set():
                    ending.set()
                    abort()
                try:
                    item = finished.get(timeout=_PAUSE_SECONDS)
                except queue.Empty:
                    if ending.is_set():
                        abort()  # also requests that started during the last abort
                    continue
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    workers -= 1
                    continue
                i, j, completion = item
                results[i][j] = completion
                if on_finished is not None and not completion.unfinished:
                    on_finished(i, j, completion)
        except BaseException:
            # This breaks the requests of other callers too, which repeat them.
            stopped.set()
            fleet.cut()
            raise
        return results
