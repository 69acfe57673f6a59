"""The embedded sampler: jitted prefill and decode on the trainer's own mesh.

A number of slots decodes together. Each prompt is read once, packed with others, and
its keys and values are copied to the slot of each of its completions; a slot whose
completion has ended takes the next one, so that a long answer holds back nobody, and
when there is no next one the slots grow fewer. Shapes come from a few buckets, so that
compiles are few.

A completion's randomness depends on the call's seed, its prompt's index, its own index
and the token's, never on its slot: the same seed gives the same completions on any
mesh and in any company, but for rounding.
"""

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from models.cache import Entries, Places
from models.qwen2 import Params
from rollout import decoding
from rollout.layout import Layout
from rollout.prompts import Prompts, common_length, pack
from rollout.types import Completion, OnFinished, OnPause, SamplingParams
from sharding.replicas import share_replicas


class JaxSampler:
    """A `PolicySampler` on the trainer's devices; see the module's docstring."""

    def __init__(self, layout: Layout, params: Params, *, version: int = 0):
        """Serves `params`, of the layout's model and on its mesh, as `version`."""
        self._layout, self._model, self._mesh = layout, layout.model, layout.mesh
        self.publish(params, version)

    def publish(self, params: Params, version: int) -> None:
        served = decoding.publish(params, self._layout.trained, self._model)
        self._params = share_replicas(served)
        self._version = version

    def make_room(self) -> None:
        self._params = None

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.make_room()

    def batches(self) -> list[int]:
        """See `Layout.batches`."""
        return self._layout.batches()

    def warm_up(self, *, on_compiled: Callable[[], None] = lambda: None) -> None:
        """Compiles what calls up to the layout's lengths run, however many completions.

        `on_compiled` is told of each of `batches`.
        """
        params = SamplingParams(max_tokens=1, stop_token_ids=(), ignore_stop=True)
        columns, width = self._layout.lengths(1, 1)
        dynamic = decoding.dynamic_params(params)
        for batch in self.batches():
            block = self.read(0, [[0]], 0, self._layout.prefill(batch, 1))
            state = decoding.insert(
                self._mesh,
                decoding.empty(self._model, batch, columns, width),
                jax.random.key_data(jax.random.key(0)),
                *_padded([], [], block, batch, self._layout.refill(batch)),
            )
            state, _ = self._decode(state, dynamic, batch)
            self._narrow(state, {}, batch)
            on_compiled()

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        on_finished: OnFinished | None = None,
        on_pause: OnPause | None = None,
    ) -> list[list[Completion]]:
        longest = max((len(prompt) for prompt in prompts), default=0)
        if not all(len(prompt) for prompt in prompts):
            raise ValueError("a prompt has no tokens")
        limit = self._layout.trained.config.max_positions
        if longest + params.max_tokens > limit:
            raise ValueError(
                f"a prompt of {longest} tokens and max_tokens={params.max_tokens}"
                f" exceed the model's {limit} positions"
            )
        layout = self._layout
        columns, width = layout.lengths(longest, params.max_tokens)
        batch = layout.batch(len(prompts) * params.n)
        refill = layout.refill(batch)

        dynamic = decoding.dynamic_params(params)
        root = jax.random.key_data(jax.random.key(seed))
        results: list[list[Completion | None]] = [[None] * params.n for _ in prompts]
        state = decoding.empty(self._model, batch, columns, width)
        shape = layout.prefill(batch, longest)
        waiting = _Waiting(self, prompts, params.n, shape)
        running: dict[int, tuple[int, int]] = {}
        # Each group of devices in turn, so that all of them narrow alike.
        free = sorted(range(batch), key=lambda slot: slot % (batch // layout.copies))
        while running or waiting:
            if not waiting:
                state, running, batch = self._narrow(state, running, batch)
            while free and waiting:
                tasks, block = waiting.take(min(len(free), refill))
                slots = [free.pop(0) for _ in tasks]
                running.update(zip(slots, tasks, strict=True))
                state = decoding.insert(
                    self._mesh,
                    state,
                    root,
                    *_padded(slots, tasks, block, batch, refill),
                )
            ends = refill if waiting else self._ends_to_narrow(running, batch)
            idle = batch - len(running)
            wake = idle + min(ends, len(running))
            state, (done, count, ids, logprobs) = self._decode(
                state, dynamic, wake, on_pause
            )
            for slot in [slot for slot in running if done[slot]]:
                prompt, sample = running.pop(slot)
                free.append(slot)
                completion = self._completion(
                    ids[slot, : count[slot]], logprobs[slot, : count[slot]], params
                )
                results[prompt][sample] = completion
                if on_finished is not None:
                    on_finished(prompt, sample, completion)
            if on_pause is not None:
                on_pause()
        return results

    def _decode(self, state, dynamic, wake: int, on_pause: OnPause | None = None):
        """Decodes until `wake` slots are done, a call after the other.

        In between this thread is Python's again, and a signal may end it.
        """
        while True:
            state, drawn = decoding.decode(
                self._model, self._layout.pace, self._params, state, dynamic, wake
            )
            if np.sum(drawn[0]) >= wake:
                return state, jax.device_get(drawn)
            if on_pause is not None:
                on_pause()

    def _completion(self, ids, logprobs, params: SamplingParams) -> Completion:
        stopped = not params.ignore_stop and ids[-1] in params.stop_token_ids
        return Completion(
            token_ids=ids.copy(),
            sampler_logprobs=logprobs.copy(),
            finish_reason="stop" if stopped else "length",
            versions=np.full(len(ids), self._version, np.int32),
        )

    def _ends_to_narrow(self, running, batch: int) -> int:
        """How many completions must end at least before the rest fits that size."""
        copies, narrower = self._layout.copies, self._layout.narrower(batch)
        slots, fewer = batch // copies, narrower // copies
        groups = collections.Counter(slot // slots for slot in running)
        return sum(max(0, live - fewer) for live in groups.values())

    def _narrow(self, state, running, batch: int):
        """Moves what runs into fewer slots while it fits there.

        A step costs by the slot, whether a completion runs in it or not, and the
        longest completions of a call run for long after most have ended.
        """
        copies = self._layout.copies
        while (size := self._layout.narrower(batch)) and not self._ends_to_narrow(
            running, batch
        ):
            slots, fewer = batch // copies, size // copies
            running_first = sorted(
                range(batch), key=lambda slot: (slot // slots, slot not in running)
            )
            stay = np.reshape(running_first, (copies, slots))[:, :fewer].ravel()
            keep = (stay % slots).astype(np.int32)
            state = decoding.narrow(self._mesh, state, keep)
            running = {
                new: running[old]
                for new, old in enumerate(stay.tolist())
                if old in running
            }
            batch = size
        return state, running, batch

    def read(self, first: int, prompts: Prompts, shared: int, shape) -> "_Block":
        """Reads as many prompts as rows of that shape hold, from the first of these."""
        rows, length = shape
        packed, places = pack(prompts, shared=shared, rows=rows, length=length)
        k, v = decoding.prefill(self._model, self._params, packed)
        read = prompts[: len(places.row)]
        last_tokens = np.array([prompt[-1] for prompt in read], np.int32)
        return _Block(first, last_tokens, k, v, places)


class _Block(NamedTuple):
    """Prompts that were read together: from the first on, as many as have places."""

    first: int
    last_tokens: np.ndarray
    k: Entries
    v: Entries
    places: Places

    @property
    def end(self) -> int:
        return self.first + len(self.places.row)


class _Waiting:
    """Completions not yet begun, prompt by prompt, with what was read of these."""

    def __init__(self, sampler: JaxSampler, prompts: Prompts, n: int, shape):
        self._sampler, self._prompts, self._shape = sampler, prompts, shape
        self._shared = common_length(prompts) if prompts else 0
        self._tasks = collections.deque(
            (p, s) for p in range(len(prompts)) for s in range(n)
        )
        self._block: _Block | None = None

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def take(self, most: int):
        """Up to `most` tasks whose prompts share one prefilled block."""
        first = self._tasks[0][0]
        if self._block is None or first >= self._block.end:
            self._block = self._sampler.read(
                first, self._prompts[first:], self._shared, self._shape
            )
        tasks = []
        while self._tasks and self._tasks[0][0] < self._block.end and len(tasks) < most:
            tasks.append(self._tasks.popleft())
        return tasks, self._block


def _padded(slots, tasks, block: _Block, batch: int, refill: int):
    """Arrays of one insertion; unused entries name a slot that does not exist."""
    slot = np.full(refill, batch, np.int32)
    of_block = np.zeros(refill, np.int32)
    path = np.zeros((refill, 2), np.uint32)
    for i, (s, (prompt, sample)) in enumerate(zip(slots, tasks, strict=True)):
        slot[i], of_block[i] = s, prompt - block.first
        path[i] = prompt, sample
    row, start, length, shared = block.places
    places = Places(row[of_block], start[of_block], length[of_block], shared)
    return block.k, block.v, places, slot, block.last_tokens[of_block], path
