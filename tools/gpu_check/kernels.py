"""Measures the GPU's limits, and compares kernels with dense float32 references."""

import functools
import sys
from importlib.metadata import distributions

import jax
import jax.numpy as jnp
import numpy as np

from models import attention
from models.cache import Cached, Seen
from rollout.inverse_cdf import draw_tokens
from tools.gpu_check.__main__ import say
from tools.gpu_check.shapes import SIZES, clock, error, make_batch

_PACKAGES = "jax jaxlib flax optax orbax-checkpoint numpy transformers".split()


def machine(tiny: bool) -> None:
    stats = jax.devices()[0].memory_stats() or {}
    say(
        what="versions", device=jax.devices()[0].device_kind,
        **{name: d.version for name in _PACKAGES for d in distributions(name=name)},
        python=sys.version.split()[0], limit_gib=stats.get("bytes_limit", 0) / 2**30,
    )  # fmt: skip
    n = 512 if tiny else 8192
    a, b = jax.random.normal(jax.random.key(0), (2, n, n), jnp.bfloat16)
    product = jax.jit(jnp.matmul)
    t = clock(lambda: product(a, b))
    say(what="matmul_bf16", **t, tflops=2e-12 * n**3 / t["s"])
    big = jnp.zeros((1 if tiny else 1024) * 2**20)
    add = jax.jit(lambda x: x + 1)
    t = clock(lambda: add(big))
    say(what="copy", **t, tb_per_s=2e-12 * big.nbytes / t["s"])
    # The relative error of TF32 is 3e-4, that of float32 is 1e-7.
    x, y = np.random.default_rng(0).normal(size=(2, 512, 512)).astype(np.float32)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    for precision in ("default", "high", "highest"):
        with jax.default_matmul_precision(precision):
            found = jax.jit(jnp.matmul)(x, y)
        say(what="matmul_float32", precision=precision, error=error(found, exact))


def kernels(tiny: bool) -> None:
    cases = [("0.5B", "bfloat16", 8, 4096), ("1.5B", "bfloat16", 4, 4096)]
    cases += [("0.5B", "float32", 1, 1024)]
    for name, dtype, rows, length in [("tiny", "float32", 1, 256)] if tiny else cases:
        _attention(name, dtype, rows, length)
        _decode_attention(name, dtype, 16 * rows, length)
    _draws(*((2048, 1024) if tiny else (8192, 151936)))


def _normal(dtype: str, *shapes: tuple[int, ...]) -> list[jax.Array]:
    return [
        jax.random.normal(jax.random.key(i), s, dtype) for i, s in enumerate(shapes)
    ]


def _attention(name: str, dtype: str, rows: int, length: int) -> None:
    """Compares output and gradients of one row with dense float32; times all rows."""
    size, (batch, lengths, _) = SIZES[name], make_batch(SIZES[name], rows, length)
    heads, kv_heads = (
        (rows, length, n, size.hidden // size.heads)
        for n in (size.heads, size.kv_heads)
    )
    q, k, v, d = _normal(dtype, heads, kv_heads, kv_heads, heads)
    ids = jnp.asarray(batch.segment_ids)
    how = attention.default_implementation(None, dtype)

    def both(attend):
        def run(q, k, v, ids, d):
            out = attend(q, k, v, ids, jnp.zeros_like(ids)).astype(jnp.float32)
            out *= (ids > 0)[..., None, None]
            return jnp.sum(out * d), out

        return jax.jit(jax.value_and_grad(run, (0, 1, 2), has_aux=True))

    def attend(*arrays):
        return attention.segment_attention(*arrays, implementation=how, mesh=None)

    ours, exact = both(attend), both(attention.dense_attention)
    row = [x[:1] for x in (q, k, v, ids, d)]
    with jax.default_matmul_precision("highest"):
        (_, out2), grads2 = exact(*(x.astype(jnp.float32) for x in row[:3]), *row[3:])
    ((_, out), grads), (_, again) = ours(*row), ours(*row)
    names = "error_out error_dq error_dk error_dv".split()
    errors = map(error, (out, *grads), (out2, *grads2))
    same = all(bool(jnp.array_equal(a, b)) for a, b in zip(grads, again, strict=True))
    forward = jax.jit(lambda *x: attend(*x, jnp.zeros_like(ids)))
    tflop = 2e-12 * size.hidden * float((lengths.astype(float) ** 2).sum())
    say(
        what="attention", case=name, dtype=dtype, implementation=how, same_twice=same,
        **dict(zip(names, errors, strict=True)),
        forward_tflops=tflop / clock(lambda: forward(q, k, v, ids))["s"],
        both_tflops=3 * tflop / clock(lambda: ours(q, k, v, ids, d))["s"],
    )  # fmt: skip


def _decode_attention(name: str, dtype: str, rows: int, columns: int) -> None:
    n, kv, h = (size := SIZES[name]).heads, size.kv_heads, size.hidden // size.heads
    shapes = (rows, n, h), (rows, kv, h, columns), (rows, kv, columns, h)
    q, k, v = _normal(dtype, *shapes)
    length = jax.random.randint(jax.random.key(3), (rows,), 1, columns - 1)
    newest = jnp.int32(columns // 3)
    visible = (newest - jnp.arange(columns)) % columns <= length[:, None]
    seen = Seen(visible, length, newest, jnp.max(length) + 1)
    how = attention.default_implementation(None, dtype)
    block = 64 if how == "triton" else columns

    @functools.partial(jax.jit, static_argnums=(3, 4))
    def run(q, k, v, how, block):
        cached = Cached(k, v, (), jnp.int32(0), seen)
        return attention.decode_attention(
            q, cached, implementation=how, block=block, mesh=None
        )

    wide = [x.astype(jnp.float32) for x in (q, k, v)]
    with jax.default_matmul_precision("highest"):
        exact = run(*wide, "xla", columns)
    far = error(run(q, k, v, how, block), exact)
    t = clock(lambda: run(q, k, v, how, block))
    rate = 2e-12 * kv * h * int(length.sum()) * q.dtype.itemsize / t["s"]
    say(what="decode_attention", case=name, dtype=dtype, error=far, **t, tb_per_s=rate)


def _draws(rows: int, words: int) -> None:
    """Computes chi square of sampled tokens in bins of equal softmax probability."""
    (logits,) = _normal("float32", (words,))
    draw = jax.jit(lambda *x: draw_tokens(*x, nucleus=False, one_pass=True)[0])
    counts = np.zeros(words)
    for i in range(8):
        uniforms = jax.random.uniform(jax.random.key(i), (rows // 8, 2))
        tokens = draw(jnp.tile(3 * logits, (rows // 8, 1)), uniforms, 1.0, 1.0)
        np.add.at(counts, np.asarray(tokens), 1)
    p = np.asarray(jax.nn.softmax(3 * logits), np.float64)
    order = np.argsort(-p)
    part = np.empty(words, int)
    part[order] = np.minimum(32 * (np.cumsum(p[order]) - p[order]), 31)
    wanted, seen = (np.bincount(part, x, 32) for x in (p * rows, counts))
    chi = float(((seen - wanted) ** 2 / np.maximum(wanted, 1)).sum())
    say(what="draws", words=words, chi_square=chi, bins=32)
