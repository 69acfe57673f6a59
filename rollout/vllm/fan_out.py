"""Many completions from a fleet of vLLM servers.

Work goes out one completion per request, so that a lost server costs what was in
flight on it and nothing else, and a finished completion can be verified while the
others are still being drawn.
"""

import collections
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence

from rollout.seeds import derive
from rollout.types import Completion, OnFinished, OnPause, SamplingParams
from rollout.vllm.client import Aborted, ServerBusy, ServerGone, ServerRefused
from rollout.vllm.fleet import Fleet
from rollout.vllm.server import ServerFailed

_BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
_PAUSE_SECONDS = 0.5


def check_lengths(
    prompts: Sequence[Sequence[int]], params: SamplingParams, max_model_len: int
) -> None:
    """Raises ValueError unless every prompt has tokens and fits with its completion."""
    room = max_model_len - params.max_tokens
    for i, prompt in enumerate(prompts):
        if not 0 < len(prompt) <= room:
            raise ValueError(
                f"prompt {i} has {len(prompt)} tokens; with {params.max_tokens} to"
                f" draw, 1 to {room} fit"
            )


def sample_all(
    fleet: Fleet,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    *,
    seed: int,
    version_of: Callable[[str], int],
    most_faults: int,
    on_finished: OnFinished | None,
    on_pause: OnPause | None,
) -> list[list[Completion]]:
    """See `Sampler.sample`. May be called from several threads.

    Args:
      fleet: has been brought up to date.
      prompts, params, seed, on_finished, on_pause: see `Sampler.sample`.
      version_of: reads a server's version label.
      most_faults: times that one completion is asked for again after a fault.

    Raises:
      ServerFailed: no server is left, and why.
      ServerRefused: a server turned a request down, in its words.
    """
    todo = collections.deque(
        (i, j) for i in range(len(prompts)) for j in range(params.n)
    )
    results: list[list[Completion]] = [[None] * params.n for _ in prompts]
    finished: queue.SimpleQueue = queue.SimpleQueue()
    stopped = threading.Event()

    def draw(prompt, own_seed) -> Completion:
        """One completion, from whichever server, asked for again until it is there."""
        faults = 0
        while True:
            with fleet.slot() as (member, epoch):
                try:
                    return member.client.generate(
                        prompt, params, seed=own_seed, version_of=version_of
                    )
                except (ServerBusy, Aborted):
                    fault = None
                except ServerGone as error:
                    fault = error
                except ServerRefused as error:
                    if error.status < 500:
                        raise
                    fault = error
            if stopped.is_set():
                raise ServerGone("sampling was stopped")
            if fault is not None:
                faults += 1
                if faults > most_faults:
                    raise ServerFailed(f"asked {faults} times in vain: {fault}")
                fleet.report(member, epoch, fault)
            time.sleep(_BACKOFF_SECONDS[min(faults, len(_BACKOFF_SECONDS) - 1)])

    def work():
        while not stopped.is_set():
            try:
                i, j = todo.popleft()
            except IndexError:
                return
            try:
                done = draw(prompts[i], derive(seed, i, j))
            except Exception as error:
                finished.put(error)
                return
            finished.put((i, j, done))

    def next_finished():
        while True:
            if on_pause is not None:
                on_pause()
            with contextlib.suppress(queue.Empty):
                return finished.get(timeout=_PAUSE_SECONDS)

    fleet.crew.run(work, min(fleet.slots, len(todo)))
    try:
        for _ in range(len(prompts) * params.n):
            item = next_finished()
            if isinstance(item, Exception):
                raise item
            i, j, completion = item
            results[i][j] = completion
            if on_finished is not None:
                on_finished(i, j, completion)
    except BaseException:
        # Other callers' requests break off too; they ask for theirs again.
        stopped.set()
        fleet.cut()
        raise
    return results
