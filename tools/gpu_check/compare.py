"""Compares gradients on the GPU with those on a CPU, and two runs on the GPU."""

import os
import subprocess
import sys
import tempfile

import jax
import numpy as np

from models.decoder import init_params
from sharding.rules import place
from tools.bench.update import SCALARS
from tools.gpu_check.__main__ import say
from tools.gpu_check.shapes import SIZES, error, make_batch, one_device, trainer


def gradient(deterministic: bool = False) -> dict[str, np.ndarray]:
    """Returns a micro-batch's float32 gradient and log-probabilities, by name."""
    model, step = trainer(
        SIZES["equal"], "float32", remat="none", deterministic=deterministic
    )
    with jax.default_matmul_precision("highest"):
        params = init_params(model, one_device(), 0)
    batch = place(make_batch(SIZES["equal"], 2, 512)[0], step.rows)
    scored = step.score(params, batch, SCALARS)
    carry = step.zeros(params, batch, SCALARS)
    sums, *_ = step.accumulate(carry, params, batch, SCALARS)
    leaves = jax.tree_util.tree_leaves_with_path({"logprobs": scored, **sums})
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def equal(tiny: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/cpu.npz"
        code = "import numpy as np; from tools.gpu_check.compare import gradient;"
        code += f" np.savez({path!r}, **gradient())"
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        theirs = dict(np.load(path))
    for precision in ("highest", "default"):
        with jax.default_matmul_precision(precision):
            _report(f"as_cpu_{precision}", gradient(), theirs, gradient())


def deterministic(tiny: bool) -> None:
    """Compares two deterministic runs; `PARTS` sets the XLA flag that this needs."""
    _report("deterministic", gradient(True), gradient(), gradient(True))


def _report(what, ours, exact, again) -> None:
    errors = {name: error(ours[name], exact[name]) for name in exact}
    worst = max(errors, key=lambda name: errors[name])
    differs = [name for name in ours if not np.array_equal(ours[name], again[name])]
    say(
        what=what, worst=worst, worst_error=errors[worst],
        logprobs_error=errors["['logprobs']"], differ_twice=len(differs), names=differs,
    )  # fmt: skip
