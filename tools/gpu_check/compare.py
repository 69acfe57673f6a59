"""The same numbers as a CPU, as transformers, and as the same card again."""

import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

from models import hf
from models.qwen2 import head_table, init_params
from sharding.rules import place
from tools.gpu_check.__main__ import say
from tools.gpu_check.shapes import (
    SCALARS,
    SIZES,
    error,
    make_batch,
    make_model,
    make_update,
)


def gradient(deterministic: bool = False) -> dict[str, np.ndarray]:
    """One micro-batch's gradient in float32, with its log-probabilities."""
    options = {"remat": "none", "deterministic": deterministic}
    step = make_update(model := make_model(SIZES["equal"], "float32", **options))
    with jax.default_matmul_precision("highest"):
        params = init_params(model, model.mesh, 0)
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
    """Twice the same with an ordered gradient and XLA's flag, which is set outside."""
    _report("deterministic", gradient(True), gradient(), gradient(True))


def _report(what, ours, exact, again) -> None:
    errors = {name: error(ours[name], exact[name]) for name in exact}
    worst = max(errors, key=lambda name: errors[name])
    differs = [name for name in ours if not np.array_equal(ours[name], again[name])]
    say(
        what=what, worst=worst, worst_error=errors[worst],
        logprobs_error=errors["['logprobs']"], differ_twice=len(differs), names=differs,
    )  # fmt: skip


def logits(tiny: bool) -> None:
    """Logits beside those of transformers on the same device."""
    import torch
    import transformers

    size = SIZES["tiny" if tiny else "0.5B"]
    device = "cuda" if torch.cuda.is_available() and not tiny else "cpu"
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    config = transformers.Qwen2Config(**size.hf_config())
    theirs = transformers.Qwen2ForCausalLM(config).to(device)
    theirs.get_input_embeddings().weight.data.mul_(4)  # as wide as trained logits
    shape = 2, 65 if tiny else 513
    ids = np.random.default_rng(0).integers(0, size.vocab, shape, np.int32)
    tokens = torch.tensor(ids, device=device).long()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, torch.no_grad():
        theirs.save_pretrained(folder)
        exact = theirs(tokens).logits.float().cpu().numpy()
        rounded = theirs.bfloat16()(tokens).logits.float().cpu().numpy()
        del theirs
        say(what="logits_of_torch", dtype="bfloat16", error=error(rounded, exact))
        cases = ("float32", "highest"), ("float32", "default"), ("bfloat16", "default")
        for dtype, precision in cases:
            with jax.default_matmul_precision(precision):
                found = _logits(folder, make_model(size, dtype), ids)
            say(
                what="logits",
                dtype=dtype,
                precision=precision,
                error=error(found, exact),
            )


def _logits(folder: str, model, ids: np.ndarray) -> np.ndarray:
    @jax.jit
    def run(params, ids):
        at = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        hidden = model.apply({"params": params}, ids, at, jnp.ones_like(ids))
        return (hidden @ head_table(params).astype(hidden.dtype).T).astype(jnp.float32)

    return np.asarray(run(hf.load_params(pathlib.Path(folder), model, model.mesh), ids))
