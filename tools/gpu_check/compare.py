"""Compares gradients on the GPU with those on a CPU, and two runs on the GPU."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from models.decoder import init_params
from sharding.rules import place
from tools.bench.update import SCALARS
from tools.gpu_check.shapes import SIZES, Rows, error, make_batch, one_device, trainer

Arrays = Mapping[str, np.ndarray]
_CPU = "import sys, numpy; from tools.gpu_check.compare import gradient;"
_CPU += " numpy.savez(sys.argv[1], **gradient())"


def gradient(deterministic: bool = False) -> Arrays:
    """Returns a micro-batch's float32 gradient and log-probabilities, by name."""
    size = SIZES["equal"]
    model, step = trainer(size, "float32", remat="none", deterministic=deterministic)
    with jax.default_matmul_precision("highest"):
        params = init_params(model, one_device(), 0)
    batch = place(make_batch(size, 2, 512)[0], step.rows)
    scored = step.score(params, batch, SCALARS)
    carry = step.zeros(params, batch, SCALARS)
    sums, *_ = step.accumulate(carry, params, batch, SCALARS)
    leaves = jax.tree_util.tree_leaves_with_path({"logprobs": scored, **sums})
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def equal(tiny: bool) -> Rows:
    """Compares a gradient with the one that another process computes on the CPU."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", _CPU, file.name]
        subprocess.run(command, env=environment, check=True)
        exact = dict(np.load(file.name))
    for precision in ("highest", "default"):
        with jax.default_matmul_precision(precision):
            yield _differences(f"as_cpu_{precision}", gradient(), exact, gradient())


def deterministic(tiny: bool) -> Rows:
    """Compares two deterministic gradients, under the XLA flag of `PARTS`."""
    yield _differences("deterministic", gradient(True), gradient(), gradient(True))


def _differences(
    what: str, found: Arrays, exact: Arrays, again: Arrays
) -> dict[str, Any]:
    errors = {name: error(found[name], exact[name]) for name in exact}
    worst = max(errors, key=lambda name: errors[name])
    differs = [name for name in found if not np.array_equal(found[name], again[name])]
    far = {"worst_error": errors[worst], "logprobs_error": errors["['logprobs']"]}
    twice = {"differ_twice": len(differs), "names": differs}
    return {"what": what, "worst": worst, **far, **twice}
