"""Measures the GPU's peak rates; compares kernels and gradients with references."""

import functools
from collections.abc import Mapping
from importlib.metadata import distributions

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from models import attention
from models.cache import Cached, Seen
from models.decoder import init_params
from rl.processes.devices import make_deterministic
from sharding.mesh import make_mesh
from sharding.rules import put_sharded
from tools.bench import work
from tools.bench.work import SIZES, Shape, error, make_batch
from tools.gpu_check import Row, Rows

median_seconds = functools.partial(work.median_seconds, inner=10)
Arrays = Mapping[str, np.ndarray]
_PACKAGES = "jax jaxlib flax optax orbax-checkpoint numpy transformers".split()


def machine(tiny: bool) -> Rows:
    """Yields versions, speeds of matmul and copy, and errors of float32 matmuls."""
    stats = jax.devices()[0].memory_stats() or {}
    installed = {n: d.version for n in _PACKAGES for d in distributions(name=n)}
    limit = {"limit_gib": stats.get("bytes_limit", 0) / 2**30}
    yield {"what": "versions"} | work.machine() | installed | limit
    peak = work.matmul_peak(512 if tiny else 8192, jnp.bfloat16)
    yield {"what": "matmul_bf16", "tflops": peak / 1e12}
    big = jnp.zeros((1 if tiny else 1024) * 2**20)
    add = jax.jit(lambda x: x + 1)
    seconds = median_seconds(lambda: add(big))
    yield {"what": "copy", "tb_per_s": 2e-12 * big.nbytes / seconds}
    # The relative error of TF32 is 3e-4, that of float32 is 1e-7.
    x, y = np.random.default_rng(0).normal(size=(2, 512, 512)).astype(np.float32)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    for precision in ("default", "high", "highest"):
        with jax.default_matmul_precision(precision):
            far = error(jax.jit(jnp.matmul)(x, y), exact)
        yield {"what": "matmul_float32", "precision": precision, "error": far}


def kernels(tiny: bool) -> Rows:
    """Yields errors and speeds of attention."""
    cases = [("0.5B", "bfloat16", 8, 4096), ("1.5B", "bfloat16", 4, 4096)]
    cases += [("0.5B", "float32", 1, 1024)]
    for name, dtype, rows, length in [("tiny", "float32", 1, 256)] if tiny else cases:
        how = attention.default_implementation(None, dtype)
        case = {"case": name, "dtype": dtype, "implementation": how}
        yield _attention(SIZES[name], dtype, rows, length, how) | case
        yield _decode_attention(SIZES[name], dtype, 16 * rows, length, how) | case


def _normal(dtype: str, *shapes: tuple[int, ...]) -> list[jax.Array]:
    return [
        jax.random.normal(jax.random.key(i), s, dtype) for i, s in enumerate(shapes)
    ]


def _attention(
    size: Shape, dtype: str, rows: int, length: int, how: attention.Implementation
) -> Row:
    """Compares attention in one row with dense float32 attention; times all rows."""
    _, batch, lengths = make_batch(size, rows, length)
    heads, kv_heads = (
        (rows, length, n, size.hidden // size.heads)
        for n in (size.heads, size.kv_heads)
    )
    q, k, v, d = _normal(dtype, heads, kv_heads, kv_heads, heads)
    ids = jnp.asarray(batch.segment_ids)

    def attend(*arrays):
        return attention.segment_attention(*arrays, implementation=how, mesh=None)

    @functools.partial(jax.jit, static_argnums=0)
    @functools.partial(jax.value_and_grad, argnums=(1, 2, 3), has_aux=True)
    def both(attend, q, k, v, ids, d):
        out = attend(q, k, v, ids, jnp.zeros_like(ids)).astype(jnp.float32)
        out *= (ids > 0)[..., None, None]
        return jnp.sum(out * d), out

    row = [x[:1] for x in (q, k, v, ids, d)]
    wide = [x.astype(jnp.float32) for x in row[:3]]
    with jax.default_matmul_precision("highest"):
        (_, out2), grads2 = both(attention.dense_attention, *wide, *row[3:])
    ((_, out), grads), (_, again) = both(attend, *row), both(attend, *row)
    names = ("error_out", "error_dq", "error_dk", "error_dv")
    errors = dict(zip(names, map(error, (out, *grads), (out2, *grads2)), strict=True))
    errors["same_twice"] = all(map(jnp.array_equal, grads, again))
    forward = jax.jit(lambda *x: attend(*x, jnp.zeros_like(ids)))
    tflop = 2e-12 * size.hidden * float((lengths.astype(float) ** 2).sum())
    rate = tflop / median_seconds(lambda: forward(q, k, v, ids))
    both_rate = 3 * tflop / median_seconds(lambda: both(attend, q, k, v, ids, d))
    rates = {"forward_tflops": rate, "both_tflops": both_rate}
    return {"what": "attention", **errors, **rates}


def _decode_attention(
    size: Shape, dtype: str, rows: int, columns: int, how: attention.Implementation
) -> Row:
    """Times attention in a decode step and compares it with dense float32 attention."""
    n, kv, h = size.heads, size.kv_heads, size.hidden // size.heads
    shapes = (rows, n, h), (rows, kv, h, columns), (rows, kv, columns, h)
    q, k, v = _normal(dtype, *shapes)
    length = jax.random.randint(jax.random.key(3), (rows,), 1, columns - 1)
    newest = jnp.int32(columns // 3)
    visible = (newest - jnp.arange(columns)) % columns <= length[:, None]
    seen = Seen(visible, length, newest, jnp.max(length) + 1)

    @functools.partial(jax.jit, static_argnames=("implementation", "block"))
    def run(q, k, v, **how):
        cached = Cached(k, v, (), jnp.int32(0), seen)
        return attention.decode_attention(q, cached, mesh=None, **how)

    with jax.default_matmul_precision("highest"):
        wide = [x.astype(jnp.float32) for x in (q, k, v)]
        exact = run(*wide, implementation="xla", block=columns)
    block = 64 if how == "triton" else columns
    measured = functools.partial(run, q, k, v, implementation=how, block=block)
    seconds = median_seconds(measured)
    rate = 2e-12 * kv * h * int(length.sum()) * q.dtype.itemsize / seconds
    far = error(measured(), exact)
    return {"what": "decode_attention", "error": far, "s": seconds, "tb_per_s": rate}


def _gradient(mesh: Mesh | None = None, deterministic: bool = False) -> Arrays:
    """Returns the float32 gradient and log-probabilities of a micro-batch, by name."""
    mesh, size = mesh or work.one_device(), SIZES["equal"]
    model, step = work.make_trainer(
        size, mesh, dtype="float32", remat="none", deterministic=deterministic
    )
    with jax.default_matmul_precision("highest"):
        params = init_params(model, mesh, 0)
    batch = put_sharded(make_batch(size, 2, 512)[1], step.rows)
    scored = step.score(params, batch, work.SCALARS)
    carry = step.zeros(params, batch, work.SCALARS)
    sums, *_ = step.accumulate(carry, params, batch, work.SCALARS)
    leaves = jax.tree_util.tree_leaves_with_path({"logprobs": scored, **sums})
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def equal(tiny: bool) -> Rows:
    """Compares a gradient on the GPU with one on the CPU, by matmul precision."""
    exact = _gradient(make_mesh(devices=jax.devices("cpu")[:1]))
    for precision in ("highest", "default"):
        with jax.default_matmul_precision(precision):
            yield _differences(f"as_cpu_{precision}", _gradient(), exact, _gradient())


def deterministic(tiny: bool) -> Rows:
    """Compares two gradients with `deterministic=True`, and one without it."""
    make_deterministic(None)
    first, second = _gradient(deterministic=True), _gradient(deterministic=True)
    yield _differences("deterministic", first, _gradient(), second)


def _differences(what: str, found: Arrays, exact: Arrays, again: Arrays) -> Row:
    errors = {name: error(found[name], exact[name]) for name in exact}
    worst = max(errors, key=lambda name: errors[name])
    differs = [name for name in found if not np.array_equal(found[name], again[name])]
    row = {"what": what, "worst": worst, "worst_error": errors[worst]}
    row |= {"logprobs_error": errors["['logprobs']"]}
    return row | {"differ_twice": len(differs), "names": differs}
