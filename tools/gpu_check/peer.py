"""Measures speeds of torch and transformers; compares logits with transformers."""

import functools
import os
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
from tools.gpu_check import Rows
from tools.plan.targets import CHIPS


def _seconds(run: Callable[[], object], repeat: int = 2) -> float:
    def finished() -> None:
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return work.median_seconds(finished, repeat=repeat)


def _start(tiny: bool) -> work.Shape:
    """Selects torch's device, and returns the sizes of the model."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # torch needs memory too
    cuda = torch.cuda.is_available() and not tiny
    torch.set_default_device("cuda" if cuda else "cpu")
    return work.SIZES["tiny" if tiny else "0.5B"]


def peer(tiny: bool) -> Rows:
    """Measures decoding by `generate`, and a GRPO gradient written in plain torch."""
    size = _start(tiny)
    model = size.transformers_model().bfloat16()
    rows, prompt = (2, 16) if tiny else (256, 512)
    ids = torch.randint(0, size.vocab, (rows, prompt))
    options = {"attention_mask": torch.ones_like(ids), "do_sample": True, "top_k": 0}
    sample = functools.partial(model.generate, ids, **options)
    short, long = (
        _seconds(functools.partial(sample, max_new_tokens=n, min_new_tokens=n), 1)
        for n in (8, 40)
    )
    each = (long - short) / 32
    case = {"version": torch.__version__, "slots": rows, "context": prompt + 24}
    yield {"what": "torch_decode", **case, "tokens_per_s": rows / each}
    shape, _, lengths = work.make_batch(size, *((2, 128) if tiny else (8, 4096)))
    flops = 3 * shape.forward_flops(lengths)
    tokens, lengths = int(lengths.sum()), np.sort(lengths)[::-1].copy()
    model.train()
    model.gradient_checkpointing_enable()

    def step() -> None:
        for start in range(0, len(lengths), 8):
            some = torch.tensor(lengths[start : start + 8])
            texts = torch.randint(0, size.vocab, (len(some), int(some.max())))
            mask = torch.arange(texts.shape[1]) < some[:, None]
            hidden = model.model(texts, attention_mask=mask).last_hidden_state
            cut = hidden.detach().requires_grad_()
            for row, count in enumerate(some.tolist()):  # one row's logits at a time
                logits = model.lm_head(cut[row, : count - 1]).float()
                logp = -cross_entropy(logits, texts[row, 1:count], reduction="none")
                ratio = torch.exp(logp - logp.detach())
                loss = -torch.minimum(ratio, ratio.clamp(0.8, 1.28)).sum() / tokens
                loss.backward()
            hidden.backward(cut.grad)
        model.zero_grad()

    s = _seconds(step)
    mfu = flops / s / CHIPS["h100"].flops
    yield {"what": "torch_update", "s": s, "tokens_per_s": tokens / s, "mfu": mfu}


def logits(tiny: bool) -> Rows:
    """Compares the model's logits with those of transformers, by precision."""
    size = _start(tiny)
    torch.backends.cuda.matmul.allow_tf32 = False
    peer = size.transformers_model()
    peer.get_input_embeddings().weight.data.mul_(4)  # logits vary as trained ones do
    tokens = torch.randint(0, size.vocab, (2, 65 if tiny else 513))
    ids = tokens.cpu().numpy().astype(np.int32)
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
            far = work.error(_logits(model, params, ids), exact)
        yield {"what": "logits", "dtype": dtype, "precision": precision, "error": far}


@functools.partial(jax.jit, static_argnums=0)
def _logits(model: Decoder, params: Params, ids: np.ndarray) -> jax.Array:
    at = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    hidden: Any = model.apply({"params": params}, ids, at, jnp.ones_like(ids))
    return (hidden @ head_table(params).astype(hidden.dtype).T).astype(jnp.float32)
