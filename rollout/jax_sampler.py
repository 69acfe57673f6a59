"""The embedded sampler: jitted prefill and decode on the trainer's own mesh.

A fixed number of slots decodes together. Each prompt is prefilled once and its keys
and values are copied to the slot of each of its completions; a slot whose completion
has ended takes the next one, so that a long answer holds back nobody. Shapes come
from a few buckets, so that compiles are few.

A completion's randomness depends on the call's seed, its prompt's index, its own index
and the token's, never on its slot: the same seed gives the same completions on any
mesh and in any company.

Axes: B slots, Q prompts of one prefill, S cached positions, W new tokens at most.
"""

import collections
import functools
from collections.abc import Sequence
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.cache import Entries, KVCache
from models.qwen2 import (
    Params,
    Qwen2,
    ServedQwen2,
    head_table,
    served_params,
)
from rollout.draw import draw
from rollout.types import Completion, OnFinished, SamplingParams
from sharding.rules import replicated

_ROWS = ("data", "fsdp")
_CACHE = PartitionSpec(_ROWS, "tensor")
# Slots are refilled when this part of them is free, not one by one: each refill is a
# round trip to the host.
_REFILL_PART = 8
# Decode batches: all slots, or these parts of them where fewer completions are left to
# draw. One compile each.
_PARTS = (8, 4, 2, 1)


@flax.struct.dataclass
class Slots:
    """The decode state of B slots.

    Attributes:
      cache: keys and values of all tokens but the last.
      token: int32 `[B]`, the last token, not yet in the cache.
      key: uint32 `[B, 2]`, the completion's own random key.
      count: int32 `[B]`, tokens drawn so far.
      done: bool `[B]`, ended or never begun.
      token_ids: int32 `[B, W]`.
      logprobs: float32 `[B, W]`.
    """

    cache: KVCache
    token: jax.Array
    key: jax.Array
    count: jax.Array
    done: jax.Array
    token_ids: jax.Array
    logprobs: jax.Array


@flax.struct.dataclass
class _Dynamic:
    """Sampling parameters as arrays: changing them compiles nothing."""

    temperature: jax.Array
    top_p: jax.Array
    max_tokens: jax.Array
    stop_ids: jax.Array


class JaxSampler:
    """A `Sampler` on the trainer's devices; see the module's docstring.

    Attributes:
      version: of the parameters served.
    """

    def __init__(
        self,
        model: Qwen2,
        mesh: Mesh,
        params: Params,
        *,
        slots: int,
        prompt_length: int = 0,
        version: int = 0,
        length_bucket: int = 64,
    ):
        """Serves `params` under `model`.

        Args:
          model: its dtype is that of the activations and of the cache.
          mesh: slots are split over data and fsdp, heads over tensor.
          params: the parameter tree, on `mesh`.
          slots: most completions decoded together.
          prompt_length: prompts up to this share one shape.
          version: of `params`.
          length_bucket: lengths are rounded up to this times a power of two.
        """
        self._model = ServedQwen2(
            model.config, mesh, dtype=model.dtype, attention=model.attention
        )
        self._mesh = mesh
        self._rows = mesh.shape["data"] * mesh.shape["fsdp"]
        self._slots, self._bucket = slots, length_bucket
        self._prompt_length = prompt_length
        self.publish(params, version)

    def publish(self, params: Params, version: int) -> None:
        self._params = _serve(params, self._model.config, self._model.dtype)
        self.version = version

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self._params = None

    def warm_up(self, max_tokens: int) -> None:
        """Compiles what calls with `max_tokens` will run, however many completions."""
        params = SamplingParams(
            max_tokens=max_tokens, stop_token_ids=(), ignore_stop=True
        )
        width = self._round_length(max_tokens)
        prefix = self._round_length(self._prompt_length)
        for batch in self._batches():
            refill = max(1, batch // _REFILL_PART)
            block = _Block(0, [], *self.prefill([], self._round_rows(refill), prefix))
            state = _insert(
                self._mesh,
                _empty(self._model, self._mesh, batch, prefix + width, width),
                jax.random.key_data(jax.random.key(0)),
                *_padded([], [], block, batch, refill),
            )
            _decode(
                self._model, self._mesh, self._params, state, _dynamic(params), batch
            )

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seed: int,
        on_finished: OnFinished | None = None,
    ) -> list[list[Completion]]:
        longest = max((len(prompt) for prompt in prompts), default=0)
        if not all(len(prompt) for prompt in prompts):
            raise ValueError("a prompt has no tokens")
        limit = self._model.config.max_positions
        if longest + params.max_tokens > limit:
            raise ValueError(
                f"a prompt of {longest} tokens and max_tokens={params.max_tokens}"
                f" exceed the model's {limit} positions"
            )
        width = self._round_length(params.max_tokens)
        prefix = self._round_length(max(longest, self._prompt_length))
        batch = self._batch(len(prompts) * params.n)
        refill = max(1, batch // _REFILL_PART)
        prefill_rows = self._round_rows(refill)

        dynamic = _dynamic(params)
        root = jax.random.key_data(jax.random.key(seed))
        results: list[list[Completion | None]] = [[None] * params.n for _ in prompts]
        state = _empty(self._model, self._mesh, batch, prefix + width, width)
        waiting = _Waiting(self, prompts, params.n, prefill_rows, prefix)
        running: dict[int, tuple[int, int]] = {}
        free = list(range(batch))
        while running or waiting:
            while free and waiting:
                tasks, block = waiting.take(min(len(free), refill))
                slots = [free.pop(0) for _ in tasks]
                running.update(zip(slots, tasks, strict=True))
                state = _insert(
                    self._mesh,
                    state,
                    root,
                    *_padded(slots, tasks, block, batch, refill),
                )
            wake = min(refill, len(running)) if waiting else len(running)
            idle = batch - len(running)
            state, drawn = _decode(
                self._model, self._mesh, self._params, state, dynamic, wake + idle
            )
            done, count, ids, logprobs = jax.device_get(drawn)
            for slot in [slot for slot in running if done[slot]]:
                prompt, sample = running.pop(slot)
                free.append(slot)
                completion = self._completion(
                    ids[slot, : count[slot]], logprobs[slot, : count[slot]], params
                )
                results[prompt][sample] = completion
                if on_finished is not None:
                    on_finished(prompt, sample, completion)
        return results

    def _completion(self, ids, logprobs, params: SamplingParams) -> Completion:
        stopped = not params.ignore_stop and ids[-1] in params.stop_token_ids
        return Completion(
            token_ids=ids.copy(),
            sampler_logprobs=logprobs.copy(),
            finish_reason="stop" if stopped else "length",
            versions=np.full(len(ids), self.version, np.int32),
        )

    def _round_length(self, length: int) -> int:
        bucket = self._bucket
        while bucket < length:
            bucket *= 2
        return min(bucket, max(self._model.config.max_positions, length))

    def _batches(self) -> list[int]:
        """The sizes of the decode batch, ascending."""
        return sorted({self._round_rows(max(1, self._slots // n)) for n in _PARTS})

    def _batch(self, completions: int) -> int:
        """The smallest that takes them all, or all slots."""
        sizes = self._batches()
        return next((size for size in sizes if size >= completions), sizes[-1])

    def _round_rows(self, rows: int) -> int:
        return -(-rows // self._rows) * self._rows

    def prefill(self, prompts: Sequence[Sequence[int]], rows: int, size: int):
        """k and v of all but the last token of each prompt, and how many those are."""
        ids = np.zeros((rows, size), np.int32)
        segments = np.zeros((rows, size), np.int32)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = prompt
            segments[row, : len(prompt) - 1] = 1
        k, v = _prefill(self._model, self._mesh, self._params, ids, segments)
        return k, v, segments.sum(axis=1, dtype=np.int32)


class _Block(NamedTuple):
    """Prompts that were prefilled together."""

    first: int
    prompts: Sequence[Sequence[int]]
    k: Entries
    v: Entries
    lengths: np.ndarray


class _Waiting:
    """Completions not yet begun, prompt by prompt, with their prefilled prefixes."""

    def __init__(self, sampler, prompts, n, rows, size):
        self._sampler, self._prompts = sampler, prompts
        self._rows, self._size = rows, size
        self._tasks = collections.deque(
            (p, s) for p in range(len(prompts)) for s in range(n)
        )
        self._block: _Block | None = None
        self._end = 0

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def take(self, most: int):
        """Up to `most` tasks whose prompts share one prefilled block."""
        if self._tasks[0][0] >= self._end:
            first = self._end
            self._end = min(first + self._rows, len(self._prompts))
            chunk = self._prompts[first : self._end]
            entries = self._sampler.prefill(chunk, self._rows, self._size)
            self._block = _Block(first, chunk, *entries)
        tasks = []
        while self._tasks and self._tasks[0][0] < self._end and len(tasks) < most:
            tasks.append(self._tasks.popleft())
        return tasks, self._block


def _padded(slots, tasks, block: _Block, batch: int, refill: int):
    """Arrays of one insertion; unused entries name a slot that does not exist."""
    slot = np.full(refill, batch, np.int32)
    row = np.zeros(refill, np.int32)
    last = np.zeros(refill, np.int32)
    path = np.zeros((refill, 2), np.uint32)
    for i, (s, (prompt, sample)) in enumerate(zip(slots, tasks, strict=True)):
        slot[i], row[i] = s, prompt - block.first
        last[i] = block.prompts[prompt - block.first][-1]
        path[i] = prompt, sample
    return block.k, block.v, block.lengths, slot, row, last, path


def _dynamic(params: SamplingParams) -> _Dynamic:
    return _Dynamic(
        temperature=jnp.float32(params.temperature),
        top_p=jnp.float32(params.top_p),
        max_tokens=jnp.int32(params.max_tokens),
        stop_ids=_stop_ids(params),
    )


def _stop_ids(params: SamplingParams) -> jax.Array:
    """`[8]`, padded with an id that no token has, so that their number is no shape."""
    ids = () if params.ignore_stop else params.stop_token_ids
    size = max(8, len(ids))
    return jnp.asarray([*ids, *[-1] * (size - len(ids))], jnp.int32)


def _pin(state: Slots, mesh: Mesh) -> Slots:
    """Slots are split over data and fsdp, the cache's heads over tensor."""
    rows = NamedSharding(mesh, PartitionSpec(_ROWS))
    cache = NamedSharding(mesh, _CACHE)
    shardings = jax.tree.map(lambda _: rows, state)
    shardings = shardings.replace(
        cache=KVCache(
            k=(cache,) * len(state.cache.k),
            v=(cache,) * len(state.cache.v),
            length=rows,
            clock=replicated(mesh),
        )
    )
    return jax.lax.with_sharding_constraint(state, shardings)


_serve = jax.jit(served_params, static_argnums=(1, 2))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _empty(model: ServedQwen2, mesh: Mesh, batch: int, size: int, width: int) -> Slots:
    state = Slots(
        cache=KVCache.zeros(model.config, batch, size, model.dtype),
        token=jnp.zeros(batch, jnp.int32),
        key=jnp.zeros((batch, 2), jnp.uint32),
        count=jnp.zeros(batch, jnp.int32),
        done=jnp.ones(batch, bool),
        token_ids=jnp.zeros((batch, width), jnp.int32),
        logprobs=jnp.zeros((batch, width), jnp.float32),
    )
    return _pin(state, mesh)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _prefill(model, mesh, params, ids, segments) -> tuple[Entries, Entries]:
    rows = NamedSharding(mesh, PartitionSpec(_ROWS))
    ids, segments = jax.lax.with_sharding_constraint((ids, segments), rows)
    positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    _, k, v = model.apply({"params": params}, ids, positions, segments)
    # Copied to slots on other devices: whole everywhere, once per block of prompts.
    heads = NamedSharding(mesh, PartitionSpec(None, "tensor"))
    return jax.lax.with_sharding_constraint((k, v), heads)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _insert(mesh, state: Slots, root, k, v, lengths, slot, row, last, path) -> Slots:
    def key(pair):
        base = jax.random.wrap_key_data(root)
        return jax.random.key_data(
            jax.random.fold_in(jax.random.fold_in(base, pair[0]), pair[1])
        )

    def put(array, value):
        return array.at[slot].set(value, mode="drop")

    state = state.replace(
        cache=state.cache.filled(k, v, lengths, row, slot),
        token=put(state.token, last),
        key=put(state.key, jax.vmap(key)(path)),
        count=put(state.count, 0),
        done=put(state.done, False),
    )
    return _pin(state, mesh)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _decode(model, mesh, params, state: Slots, dynamic: _Dynamic, wake):
    """Decodes until at least `wake` slots are done.

    Returns:
      The state; and its done, count, token_ids and logprobs, whole on every device, so
      that each of several processes sees all and decides alike.
    """
    table = head_table(params).astype(model.dtype)
    accumulate = jnp.promote_types(model.dtype, jnp.float32)

    width = state.token_ids.shape[1]
    # Left to the partitioner, indexing along a row gathers the rows of all devices.
    rows = PartitionSpec(_ROWS)
    draw_rows = jax.shard_map(
        draw,
        mesh=mesh,
        in_specs=(rows, rows, PartitionSpec(), PartitionSpec()),
        out_specs=(rows, rows),
        check_vma=False,
    )

    def uniforms(key, count):
        key = jax.random.fold_in(jax.random.wrap_key_data(key), count)
        return jax.random.uniform(key, (2,))

    def body(state: Slots) -> Slots:
        cache, live = state.cache, ~state.done
        hidden, k, v = model.apply(
            {"params": params},
            state.token[:, None],
            cache.length[:, None],
            jnp.ones_like(state.token)[:, None],
            cache,
        )
        logits = jnp.einsum(
            "bd,vd->bv", hidden[:, 0], table, preferred_element_type=accumulate
        ).astype(jnp.float32)
        token, logprob = draw_rows(
            logits,
            jax.vmap(uniforms)(state.key, state.count),
            dynamic.temperature,
            dynamic.top_p,
        )
        here = live[:, None] & (jnp.arange(width) == state.count[:, None])
        count = state.count + live
        ended = jnp.any(token[:, None] == dynamic.stop_ids, axis=-1)
        ended |= count >= dynamic.max_tokens
        return Slots(
            # A row that is done is written as well, and read by nobody.
            cache=KVCache(
                k=k,
                v=v,
                length=cache.length + live,
                clock=(cache.clock + 1) % cache.size,
            ),
            token=jnp.where(live, token, state.token),
            key=state.key,
            count=count,
            done=state.done | ended,
            token_ids=jnp.where(here, token[:, None], state.token_ids),
            logprobs=jnp.where(here, logprob[:, None], state.logprobs),
        )

    state = jax.lax.while_loop(lambda state: jnp.sum(state.done) < wake, body, state)
    drawn = state.done, state.count, state.token_ids, state.logprobs
    return (
        _pin(state, mesh),
        jax.lax.with_sharding_constraint(drawn, replicated(mesh)),
    )
