"""Samples with jitted prefill and decode programs on the trainer's own devices.

Completions decode together in slots, one in each. A prompt is prefilled once for
all its new completions. A partial completion is prefilled together with its prompt. A
slot whose completion has ended takes the next completion. When none waits, the
number of slots shrinks.

Random numbers depend on the call's seed and the indices of prompt, completion and
token. Completions are equal on any mesh, except for rounding.
"""

import collections
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from models.attention import SHARES_PREFIXES
from models.cache import Entries, Spans
from models.decoder import Params
from models.inference import served_params
from rollout import decoding
from rollout.decoding import Drawn, Insertion
from rollout.layout import Layout
from rollout.prompts import Prompts, common_length, pack_prompts
from rollout.types import (
    Completion,
    Completions,
    FinishReason,
    OnFinished,
    OnPause,
    SamplingParams,
    check_lengths,
    start_completions,
)
from sharding.replicas import share_replicas


class JaxSampler:
    """Implements `PolicySampler` on the trainer's devices."""

    def __init__(self, layout: Layout, params: Params):
        self._layout, self._model, self._mesh = layout, layout.model, layout.mesh
        # Whether prefill can compute a common prefix of prompts only once.
        self.shares_prefixes = self._model.attention in SHARES_PREFIXES
        self.publish(params, 0)

    def publish(self, params: Params, version: int) -> None:
        self.make_room()  # free the old weights first, if the trainer has not
        served = served_params(params, self._layout.trained, self._model)
        self._params = share_replicas(served)
        self._version = version

    def make_room(self) -> None:
        self._params = None

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.make_room()

    def warm_up(
        self, *, partial: bool = False, on_compiled: Callable[[], None] = lambda: None
    ) -> None:
        """Compiles the programs for the layout's lengths, except decoding with top-p.

        With `partial`, includes the prefill of partial completions. Calls `on_compiled`
        after each number of slots of `Layout.slot_counts`.
        """
        params = SamplingParams(max_tokens=1, stop_token_ids=(), ignore_stop=True)
        prefix = self._layout.prefix
        columns, width = self._layout.lengths(1, 1, prefix)
        dynamic = decoding.dynamic_params(params)
        root = jax.random.key_data(jax.random.key(0))
        for num_slots in self._layout.slot_counts():
            shapes = [self._layout.prefill_shape(num_slots, 1)]
            if partial:
                shapes.append(self._layout.partial_shape(num_slots, columns, prefix))
            state = decoding.empty(self._model, num_slots, columns, width, prefix)
            for shape in shapes:
                block = self.read(0, [[0]], 0, shape)
                new = _insertion(
                    [], [], block, num_slots, self._layout.refill(num_slots)
                )
                state = decoding.insert(self._mesh, state, root, new)
            state, *_ = self._decode(state, dynamic, False, num_slots)
            self._compact(state, {}, num_slots)
            on_compiled()

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
        layout = self._layout
        results = start_completions(prompts, params, partial)
        check_lengths(prompts, params, layout.trained.config.max_positions)
        longest = max(map(len, prompts), default=0)
        alike = prompts and common_length(prompts) >= layout.prefix
        prefix = layout.prefix if alike else 0
        columns, width = layout.lengths(longest, params.max_tokens, prefix)
        unfinished = sum(c.unfinished for group in results for c in group)
        num_slots = layout.slots_for(unfinished)
        refill = layout.refill(num_slots)

        dynamic = decoding.dynamic_params(params)
        truncates = params.top_p < 1 and params.temperature > 0
        root = jax.random.key_data(jax.random.key(seed))
        state = decoding.empty(self._model, num_slots, columns, width, prefix)
        shapes = (
            layout.prefill_shape(num_slots, longest),
            layout.partial_shape(num_slots, columns, prefix),
        )
        waiting = _Waiting(self, prompts, results, params.max_tokens, shapes)
        running: dict[int, _Task] = {}
        # Fill the copies of the weights in turn, so that their slots shrink equally.
        free = sorted(
            range(num_slots), key=lambda slot: slot % (num_slots // layout.copies)
        )
        while running or waiting:
            if not waiting:
                state, running, num_slots = self._compact(state, running, num_slots)
            while free and waiting:
                tasks, block = waiting.take(min(len(free), refill))
                slots = [free.pop(0) for _ in tasks]
                running.update(zip(slots, tasks, strict=True))
                new = _insertion(slots, tasks, block, num_slots, refill)
                state = decoding.insert(self._mesh, state, root, new)
            ends = refill if waiting else self._ends_to_compact(running, num_slots)
            idle = num_slots - len(running)
            min_done = idle + min(ends, len(running))
            state, drawn, enough = self._decode(
                state, dynamic, truncates, min_done, on_pause
            )
            for slot in [slot for slot in running if drawn.done[slot]]:
                task = running.pop(slot)
                free.append(slot)
                completion = self._completion(drawn, slot, task, params)
                results[task.prompt][task.sample] = completion
                if on_finished is not None:
                    on_finished(task.prompt, task.sample, completion)
            if enough or (on_pause is not None and on_pause()):
                for slot, task in running.items():
                    completion = self._completion(drawn, slot, task, params)
                    results[task.prompt][task.sample] = completion
                break
        return results

    def _decode(self, state, dynamic, truncates, min_done, on_pause=None):
        """Decodes until `min_done` slots are done, or `on_pause` returns True."""
        model, settings = self._model, self._layout.settings
        while True:
            state, drawn = decoding.decode(
                model, settings, truncates, self._params, state, dynamic, min_done
            )
            reached = np.sum(drawn.done) >= min_done
            if reached or (on_pause is not None and on_pause()):
                return state, jax.device_get(drawn), not reached

    def _completion(
        self, drawn: Drawn, slot: int, task: "_Task", params: SamplingParams
    ) -> Completion:
        here = slot, slice(drawn.count[slot])
        ids = drawn.token_ids[here].copy()
        reason: FinishReason = "unfinished"
        if drawn.done[slot]:
            stopped = not params.ignore_stop and ids[-1] in params.stop_token_ids
            reason = "stop" if stopped else "length"
        logprobs = drawn.logprobs[here].copy()
        versions = np.full(len(ids), self._version, np.int32)
        return task.partial.followed_by(Completion(ids, logprobs, reason, versions))

    def _ends_to_compact(self, running, num_slots: int) -> int:
        """Returns how many must end until there are fewer slots, or none runs."""
        copies, smaller = self._layout.copies, self._layout.fewer_slots(num_slots)
        each, fewer = num_slots // copies, smaller // copies
        groups = collections.Counter(slot // each for slot in running)
        return sum(max(0, live - fewer) for live in groups.values())

    def _compact(self, state, running, num_slots: int):
        """Removes slots while the running completions fit into fewer."""
        copies = self._layout.copies
        while size := self._layout.fewer_slots(num_slots):
            if self._ends_to_compact(running, num_slots):
                break
            each, fewer = num_slots // copies, size // copies
            running_first = sorted(
                range(num_slots), key=lambda slot: (slot // each, slot not in running)
            )
            stay = np.reshape(running_first, (copies, each))[:, :fewer].ravel()
            keep = (stay % each).astype(np.int32)
            state = decoding.compact(self._mesh, state, keep)
            moved = enumerate(stay.tolist())
            running = {new: running[old] for new, old in moved if old in running}
            num_slots = size
        return state, running, num_slots

    def read(self, first: int, prompts: Prompts, shared: int, shape) -> "_Block":
        """Prefills, in order, the prompts that fit into the packed rows.

        `shape` is the number and the length of the rows. `shared` is the length of the
        prompts' common prefix, and `first` the first prompt's index in `_Waiting`.
        """
        rows, length = shape
        packed, spans = pack_prompts(prompts, shared=shared, rows=rows, length=length)
        k, v = decoding.prefill(self._model, self._params, packed)
        read = prompts[: len(spans.row)]
        last_tokens = np.array([prompt[-1] for prompt in read], np.int32)
        return _Block(first, last_tokens, k, v, spans)


class _Task(NamedTuple):
    prompt: int  # index of its prompt in the call
    sample: int  # index of the completion among those of the prompt
    text: int  # index of the text to prefill
    partial: Completion  # the completion so far
    limit: int  # maximum number of tokens to add


class _Block(NamedTuple):
    """Holds the keys and values of R texts (see `_Waiting`), prefilled together."""

    first: int  # index of the first of these texts in the queue
    last_tokens: np.ndarray  # int32 [R], last token of each text, not prefilled
    k: Entries  # of the packed rows; see `decoding.prefill`
    v: Entries
    spans: Spans  # of the R texts in the rows

    @property
    def end(self) -> int:
        return self.first + len(self.spans.row)


class _Waiting:
    """Queues completions that have no slot yet, and prefills their texts in blocks.

    A text is either a prompt, prefilled once for all its new completions, or a prompt
    followed by one partial completion. The second kind is prefilled in longer rows.
    """

    def __init__(
        self,
        sampler: JaxSampler,
        prompts: Prompts,
        partial: Completions,
        limit: int,
        shapes,
    ):
        self._sampler, self._shapes = sampler, shapes
        self._texts: list[Sequence[int]] = []
        self._is_partial: list[bool] = []
        self._tasks: collections.deque[_Task] = collections.deque()
        for p, (prompt, completions) in enumerate(zip(prompts, partial, strict=True)):
            unfinished = [(s, c) for s, c in enumerate(completions) if c.unfinished]
            unfinished.sort(key=lambda item: len(item[1].token_ids) > 0)
            for n, (s, completion) in enumerate(unfinished):
                sampled = completion.token_ids.tolist()
                if sampled or n == 0:
                    self._texts.append([*prompt, *sampled])
                    self._is_partial.append(bool(sampled))
                text, left = len(self._texts) - 1, limit - len(sampled)
                self._tasks.append(_Task(p, s, text, completion, left))
        shares = sampler.shares_prefixes and self._texts
        self._shared = common_length(self._texts) if shares else 0
        self._block: _Block | None = None

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def take(self, most: int):
        """Removes up to `most` tasks of one block; returns them and the block."""
        first = self._tasks[0].text
        if self._block is None or first >= self._block.end:
            is_partial, *others = self._is_partial[first:]
            alike = itertools.takewhile(lambda other: other == is_partial, others)
            texts = self._texts[first : first + 1 + sum(1 for _ in alike)]
            shape = self._shapes[is_partial]
            self._block = None  # frees the old block before the next prefill
            self._block = self._sampler.read(first, texts, self._shared, shape)
        end = self._block.end
        ready = itertools.takewhile(lambda task: task.text < end, self._tasks)
        tasks = list(itertools.islice(ready, most))
        for _ in tasks:
            self._tasks.popleft()
        return tasks, self._block


def _insertion(
    slots: Sequence[int],
    tasks: Sequence[_Task],
    block: _Block,
    num_slots: int,
    refill: int,
) -> Insertion:
    """Returns the insertion of `tasks` into `slots`, padded to R = `refill`."""
    # The padding has distinct slots that are out of range, which `insert` drops.
    slot = np.arange(num_slots, num_slots + refill, dtype=np.int32)
    of_block, limit = np.zeros((2, refill), np.int32)
    path = np.zeros((refill, 2), np.uint32)
    for i, (s, task) in enumerate(zip(slots, tasks, strict=True)):
        slot[i], of_block[i], limit[i] = s, task.text - block.first, task.limit
        path[i] = task.prompt, task.sample
    row, start, length, shared = block.spans
    spans = Spans(row[of_block], start[of_block], length[of_block], shared)
    last = block.last_tokens[of_block]
    return Insertion(block.k, block.v, spans, slot, last, limit, path)
