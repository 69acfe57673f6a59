"""Measures speeds of torch and transformers; compares logits with transformers."""

import functools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from models import hf
from models.decoder import Decoder, Params, head_table
from tools.bench import work
from tools.gpu_check import PEAK, Rows


def _seconds(run: Callable[[], object], repeat: int = 2) -> float:
    def finished() -> None:
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return work.median_seconds(finished, repeat=repeat)


def peer(tiny: bool) -> Rows:
    """Measures decoding by `generate`, and a GRPO gradient written in plain torch."""
    size = work.SIZES["tiny" if tiny else "0.5B"]
    if torch.cuda.is_available() and not tiny:
        torch.set_default_device("cuda")
    model = size.transformers_model().bfloat16()
    rows, prompt = (2, 16) if tiny else (256, 512)
    ids = torch.randint(0, size.vocab, (rows, prompt))
    options = {"attention_mask": torch.ones_like(ids), "do_sample": True, "top_k": 0}

    def sample(new: int) -> None:
        model.generate(ids, max_new_tokens=new, min_new_tokens=new, **options)

    each = (_seconds(lambda: sample(40), 1) - _seconds(lambda: sample(8), 1)) / 32
    speed = {"context": prompt + 24, "tokens_per_s": rows / each}
    version = {"version": torch.__version__}
    yield {"what": "torch_decode", **version, "slots": rows, **speed}
    shape, _, lengths = work.make_batch(size, *((2, 128) if tiny else (8, 4096)))
    flops = 3 * shape.forward_flops(lengths)
    tokens, lengths = int(lengths.sum()), np.sort(lengths)[::-1].copy()
    model.train()
    model.gradient_checkpointing_enable()

    def step() -> None:
        for start in range(0, len(lengths), 8):
            some = torch.as_tensor(lengths[start : start + 8]).to(ids.device)
            longest = int(some.max())
            tokens_ = torch.randint(0, size.vocab, (len(some), longest))
            mask = torch.arange(longest) < some[:, None]
            hidden = model.model(tokens_, attention_mask=mask).last_hidden_state
            cut = hidden.detach().requires_grad_()
            for row, count in enumerate(some.tolist()):  # one row's logits at a time
                logits = model.lm_head(cut[row, : count - 1]).float()
                logp = -cross_entropy(logits, tokens_[row, 1:count], reduction="none")
                ratio = torch.exp(logp - logp.detach())
                loss = -torch.minimum(ratio, ratio.clamp(0.8, 1.28)).sum() / tokens
                loss.backward()
            hidden.backward(cut.grad)
        model.zero_grad()

    s = _seconds(step)
    speed = {"s": s, "tokens_per_s": tokens / s, "mfu": flops / s / PEAK}
    yield {"what": "torch_update", **speed}


def logits(tiny: bool) -> Rows:
    """Compares the model's logits with those of transformers, by precision."""
    size = work.SIZES["tiny" if tiny else "0.5B"]
    device = "cuda" if torch.cuda.is_available() and not tiny else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    peer = size.transformers_model().to(device)
    peer.get_input_embeddings().weight.data.mul_(4)  # logits vary as trained ones do
    shape = 2, 65 if tiny else 513
    ids = np.random.default_rng(0).integers(0, size.vocab, shape, np.int32)
    tokens = torch.tensor(ids, device=device).long()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, torch.no_grad():
        peer.save_pretrained(folder)
        exact = peer(tokens).logits.float().cpu().numpy()
        rounded = peer.bfloat16()(tokens).logits.float().cpu().numpy()
        del peer
        far = work.error(rounded, exact)
        yield {"what": "logits_of_torch", "dtype": "bfloat16", "error": far}
        model, _ = work.make_trainer(size, dtype="float32")
        params = hf.load_params(pathlib.Path(folder), model, work.one_device())
    cases = ("float32", "highest"), ("float32", "default"), ("bfloat16", "default")
    for dtype, precision in cases:
        model, _ = work.make_trainer(size, dtype=dtype)
        with jax.default_matmul_precision(precision):
            found = _logits(model, params, ids)
        how = {"dtype": dtype, "precision": precision}
        yield {"what": "logits", **how, "error": work.error(found, exact)}


@functools.partial(jax.jit, static_argnums=0)
def _logits(model: Decoder, params: Params, ids: np.ndarray) -> jax.Array:
    at = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    hidden: Any = model.apply({"params": params}, ids, at, jnp.ones_like(ids))
    return (hidden @ head_table(params).astype(hidden.dtype).T).astype(jnp.float32)
