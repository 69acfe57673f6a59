"""Measures tokens/s of updates and decoding, also as shares of the GPU's limits."""

import collections
import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Callable

import jax
import jax.numpy as jnp

from models.decoder import Params, init_params
from rl.base_model import parameter_count
from rollout import decoding
from rollout.jax_sampler import JaxSampler
from rollout.layout import Layout, make_layout
from rollout.types import SamplingParams
from tools.bench import update, work
from tools.gpu_check import Row, Rows
from tools.plan.targets import CHIPS

# For each model: rows of a micro-batch, row length, remat and head chunk.
UPDATES = {
    "tiny": [(2, 128, "full", 1024), (2, 128, "none", 1024)],
    "0.5B": [(8, 4096, "dots", 4096)]
    + [(8, 4096, remat, 1024) for remat in ("dots", "full", "none")],
    "1.5B": [(4, 4096, "dots", 4096), (8, 4096, "full", 1024)],
}
# For each model: number of slots, and numbers of cached positions per slot.
DECODES = {
    "tiny": [(8, [32]), (16, [32])],
    "0.5B": [(256, [512, 2048]), (1024, [512])],
    "1.5B": [(256, [512, 2048])],
}
ENDLESS = SamplingParams(n=4, max_tokens=1, stop_token_ids=(), ignore_stop=True)


def _peak_gib() -> float:
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30


def update_small(tiny: bool, name: str = "0.5B") -> Rows:
    """Yields the speed and memory of an update for each case in `UPDATES[name]`.

    Also yields the speed of its log-probabilities, and a trace of the first case.
    """
    name = "tiny" if tiny else name
    for number, (rows, length, remat, head_chunk) in enumerate(UPDATES[name]):
        options = {"remat": remat, "head_chunk": head_chunk}
        shape, batch, lengths = work.make_batch(work.SIZES[name], rows, length)
        calls = update.make_calls(shape, work.one_device(), [batch], **options)
        for what, call in calls.items():
            found = update.figures(shape, lengths, what, call)
            mfu = 1e9 * found["gflop_per_s"] / CHIPS["h100"].flops
            case = {"what": what, "size": name, "rows": rows, **options}
            yield case | found | {"mfu": mfu, "peak_gib": _peak_gib()}
        if number == 0:
            yield _trace(calls["update"], "update")
        del calls, call  # frees this training state before the next one is made


def decode_small(tiny: bool, name: str = "0.5B") -> Rows:
    """Yields the speed of decoding for each case in `DECODES[name]`, with traces.

    For each number of slots, also yields the speeds with top-p 0.95 and of prefill.
    """
    name = "tiny" if tiny else name
    size, kind = work.SIZES[name], jax.devices()[0].device_kind
    model, _ = work.make_trainer(size)
    params = init_params(model, work.one_device(), 0)
    # Other devices are compared with an H100 SXM.
    bandwidth = CHIPS["h200" if "H200" in kind else "h100"].hbm
    position = 4 * size.layers * size.kv_heads * size.hidden // size.heads
    for slots, contexts in DECODES[name]:
        new = contexts[-1] + 512 - contexts[-1] % 64
        layout = make_layout(model, slots=slots, prompt_length=64, response_length=new)
        sampler, case = JaxSampler(layout, params), {"size": name, "slots": slots}
        for context, top_p in [(c, 1.0) for c in contexts] + [(contexts[0], 0.95)]:
            run = _decoding(layout, sampler._params, context, top_p)
            each = work.median_seconds(run, repeat=3) / layout.settings.call
            middle = context + 3.5 * layout.settings.call
            needed = 2 * parameter_count(model.config) + position * slots * middle
            bound = needed / bandwidth
            found = {"context": middle, "top_p": top_p, "ms_per_token": 1e3 * each}
            found |= {"tokens_per_s": slots / each, "peak_gib": _peak_gib()}
            found |= {"bound_ms": 1e3 * bound, "of_bound": bound / each}
            yield {"what": "decode", **case, **found}
            if top_p == 1:
                yield _trace(run, "decode")
        prompts = [[(7 * i + j) % 1000 for j in range(60)] for i in range(slots // 4)]
        fill = functools.partial(sampler.sample, prompts, ENDLESS, seed=0)
        seconds = work.median_seconds(fill, repeat=2)
        yield {"what": "prefill_and_insert", **case, "s": seconds}


update_large = functools.partial(update_small, name="1.5B")
decode_large = functools.partial(decode_small, name="1.5B")


def _decoding(
    layout: Layout, served: Params, context: int, top_p: float
) -> Callable[[], object]:
    """Returns a function that decodes some tokens of slots with `context` positions."""
    columns, width = layout.lengths(1, 1, 0)
    state = decoding.empty(layout.model, layout.slots, columns, width, 0)
    state = state.replace(
        cache=state.cache.replace(length=jnp.full_like(state.cache.length, context)),
        done=jnp.zeros_like(state.done),
        limit=jnp.full_like(state.limit, width),
        uniforms=jax.random.uniform(jax.random.key(7), state.uniforms.shape),
    )
    state = jax.device_put(state, decoding.shardings(state, layout.mesh))
    dynamic = decoding.dynamic_params(dataclasses.replace(ENDLESS, top_p=top_p))
    how = layout.model, layout.settings, top_p < 1, served

    def run():
        nonlocal state
        state, drawn = decoding.decode(*how, state, dynamic, layout.slots)
        return drawn[0]

    return run


def _trace(run: Callable[[], object], where: str) -> Row:
    """Traces one call; returns the total kernel time and the 40 slowest kernels."""
    milliseconds: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        (file,) = pathlib.Path(folder).rglob("*.xplane.pb")
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            for line in plane.lines if "GPU" in plane.name else ():
                for event in line.events if line.name.startswith("Stream") else ():
                    milliseconds[event.name[:60]] += event.duration_ns / 1e6
    busy, top = milliseconds.total(), milliseconds.most_common(40)
    return {"what": "trace", "of": where, "busy_ms": busy, "top": top}
