"""Measures torch and transformers on the same GPU with the same shapes."""

import pathlib
import tempfile
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from models import hf
from models.decoder import head_table
from tools.bench.peers import transformers_model
from tools.gpu_check.__main__ import say
from tools.gpu_check.shapes import PEAK, SIZES, clock, error, make_batch, trainer


def _seconds(run: Callable[[], object], repeat: int = 2) -> float:
    def finished() -> None:
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return clock(finished, least=repeat, most=repeat)["s"]


def peer(tiny: bool) -> None:
    size = SIZES["tiny" if tiny else "0.5B"]
    if torch.cuda.is_available() and not tiny:
        torch.set_default_device("cuda")
    n = 256 if tiny else 8192
    square = torch.randn(n, n, dtype=torch.bfloat16)
    tflops = 2e-12 * n**3 / _seconds(lambda: square @ square, 10)
    say(what="torch_matmul", version=torch.__version__, tflops=tflops)
    model = transformers_model(size).bfloat16()
    rows, prompt = (2, 16) if tiny else (256, 512)
    ids = torch.randint(0, size.vocab, (rows, prompt))

    def draw(new: int) -> None:
        model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new,
            min_new_tokens=new, do_sample=True, top_k=0,
        )  # fmt: skip

    each = (_seconds(lambda: draw(40), 1) - _seconds(lambda: draw(8), 1)) / 32
    say(what="torch_decode", slots=rows, context=prompt + 24, tokens_per_s=rows / each)
    _, lengths, flops = make_batch(size, *((2, 128) if tiny else (8, 4096)))
    tokens, lengths = int(lengths.sum()), np.sort(lengths)[::-1].copy()
    model.train()
    model.gradient_checkpointing_enable()

    def step() -> None:
        """Computes a GRPO gradient of the same completions, one per padded row."""
        for start in range(0, len(lengths), 8):
            some = torch.as_tensor(lengths[start : start + 8]).to(ids.device)
            longest = int(some.max())
            tokens_ = torch.randint(0, size.vocab, (len(some), longest))
            mask = torch.arange(longest) < some[:, None]
            hidden = model.model(tokens_, attention_mask=mask).last_hidden_state
            for row, count in enumerate(some.tolist()):  # one row's logits at a time
                logits = model.lm_head(hidden[row, : count - 1]).float()
                logp = -cross_entropy(logits, tokens_[row, 1:count], reduction="none")
                ratio = torch.exp(logp - logp.detach())
                loss = -torch.minimum(ratio, ratio.clamp(0.8, 1.28)).sum() / tokens
                loss.backward(retain_graph=row + 1 < len(some))
        model.zero_grad()

    s = _seconds(step)
    say(what="torch_update", s=s, tokens_per_s=tokens / s, mfu=flops / s / PEAK)


def logits(tiny: bool) -> None:
    """Compares logits with those of transformers on the same device."""
    size = SIZES["tiny" if tiny else "0.5B"]
    device = "cuda" if torch.cuda.is_available() and not tiny else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    theirs = transformers_model(size).to(device)
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
                found = _logits(folder, trainer(size, dtype)[0], ids)
            far = error(found, exact)
            say(what="logits", dtype=dtype, precision=precision, error=far)


def _logits(folder: str, model, ids: np.ndarray) -> np.ndarray:
    @jax.jit
    def run(params, ids):
        at = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        hidden = model.apply({"params": params}, ids, at, jnp.ones_like(ids))
        return (hidden @ head_table(params).astype(hidden.dtype).T).astype(jnp.float32)

    return np.asarray(run(hf.load_params(pathlib.Path(folder), model, model.mesh), ids))
