"""Compares gradients on the GPU with those on a CPU, and with repetitions."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from models.decoder import init_params
from sharding.mesh import make_mesh
from sharding.rules import place
from tools.bench.work import SCALARS, SIZES, error, make_batch, make_trainer, one_device
from tools.gpu_check import Rows

Arrays = Mapping[str, np.ndarray]


def _gradient(mesh: Mesh | None = None, deterministic: bool = False) -> Arrays:
    """Returns a micro-batch's float32 gradient and log-probabilities, by name."""
    mesh, size = mesh or one_device(), SIZES["equal"]
    model, step = make_trainer(
        size, mesh, dtype="float32", remat="none", deterministic=deterministic
    )
    with jax.default_matmul_precision("highest"):
        params = init_params(model, mesh, 0)
    batch = place(make_batch(size, 2, 512)[0], step.rows)
    scored = step.score(params, batch, SCALARS)
    carry = step.zeros(params, batch, SCALARS)
    sums, *_ = step.accumulate(carry, params, batch, SCALARS)
    leaves = jax.tree_util.tree_leaves_with_path({"logprobs": scored, **sums})
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def equal(tiny: bool) -> Rows:
    """Compares a gradient with the one that the CPU computes."""
    exact = _gradient(make_mesh(devices=jax.devices("cpu")[:1]))
    for precision in ("highest", "default"):
        with jax.default_matmul_precision(precision):
            yield _differences(f"as_cpu_{precision}", _gradient(), exact, _gradient())


def deterministic(tiny: bool) -> Rows:
    """Compares two gradients with `deterministic=True`."""
    first, second = _gradient(deterministic=True), _gradient(deterministic=True)
    yield _differences("deterministic", first, _gradient(), second)


def _differences(
    what: str, found: Arrays, exact: Arrays, again: Arrays
) -> dict[str, Any]:
    errors = {name: error(found[name], exact[name]) for name in exact}
    worst = max(errors, key=lambda name: errors[name])
    differs = [name for name in found if not np.array_equal(found[name], again[name])]
    return {
        "what": what,
        "worst": worst,
        "worst_error": errors[worst],
        "logprobs_error": errors["['logprobs']"],
        "differ_twice": len(differs),
        "names": differs,
    }
