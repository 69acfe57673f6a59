"""Generates sums of two numbers below 100, and trains a small base model on them.

The base has the Qwen2.5 architecture and a tokenizer of characters. It is trained by
next-token prediction on worked additions, many of them wrong. It then knows the format
and is sometimes correct, like a pretrained base model on harder problems.
"""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from models.config import DecoderConfig
from models.decoder import Decoder, head_table, init_params
from models.hf import WEIGHTS, made_once, save_folder
from rl.problems.tokenizer import Qwen2Tokenizer
from rl.progress import watch
from rl.types import Problem
from rollout.seeds import generator
from sharding.mesh import make_mesh
from sharding.rules import named_sharding

LIMIT = 100
# Raise this number if a change of this file changes the bases that it makes.
_VERSION = 1
_EOS = "<|endoftext|>"
_BOX = "\\boxed{"
# Symbols of byte-level BPE, as in Qwen2: \u0120 is a space, \u010a a line break.
_SYMBOLS = (_EOS, *"0123456789", *"+=,?{}", "\u0120", "\u010a", *"\\boxed")
_MERGES = (("b", "o"), ("bo", "x"), ("box", "e"), ("boxe", "d"))
_LENGTH = 48  # of the rows of a training batch; the longest solution has 36 tokens


def problems(*, split: str, held_out: int, seed: int) -> list[Problem]:
    """Returns the sums a + b of one split, with a and b below 100.

    The splits are "train" and "held_out". If one has a + b, the other has neither a + b
    nor b + a. `held_out` is the number of held-out problems.
    """
    pairs = [(a, b) for a in range(LIMIT) for b in range(a, LIMIT)]
    chosen = [pairs[i] for i in generator(seed).permutation(len(pairs))]
    if split == "held_out":
        sums = chosen[:held_out]
    else:
        sums = [p for a, b in chosen[held_out:] for p in {(a, b), (b, a)}]
    return [
        Problem(
            id=f"{a}+{b}",
            problem=f"{a}+{b}",
            answers=(str(a + b),),
            source="sums",
            level=_level(a, b),
        )
        for a, b in sorted(sums)
    ]


def uneven_problems(
    *, count: int, easy: float, hard: float, held_out: int, seed: int
) -> list[Problem]:
    """Returns `count` training problems, many of which give no gradient.

    An expected share `easy` of the problems accepts every number from 0 to 199. An
    expected share `hard` accepts only 200, although the largest sum is 198.
    """
    sums = problems(split="train", held_out=held_out, seed=seed)
    random = generator(seed)
    chosen = [sums[i] for i in sorted(random.permutation(len(sums))[:count])]
    every = tuple(str(value) for value in range(2 * LIMIT))
    uneven = []
    for problem, kind in zip(chosen, random.random(count), strict=True):
        answers = problem.answers if kind >= easy + hard else (str(2 * LIMIT),)
        answers = every if kind < easy else answers
        uneven.append(dataclasses.replace(problem, answers=answers, level=None))
    return uneven


def _level(a: int, b: int) -> int:
    """Returns 1, plus 1 for each two-digit summand and each carry."""
    units, total = a % 10 + b % 10, a + b
    return 1 + sum((a >= 10, b >= 10, units >= 10, total >= 100))


def worked_solution(a: int, b: int, *, slip: int, forget_carry: bool) -> str:
    """Returns a solution of a + b that adds `slip` to the sum of the units.

    With `forget_carry`, the solution writes 0 as the carry.
    """
    units = a % 10 + b % 10 + slip
    carry = 0 if forget_carry else units // 10
    tens = a // 10 + b // 10 + carry
    total = 10 * tens + units % 10
    return (
        f"{a % 10}+{b % 10}={units}, {a // 10}+{b // 10}+{carry}={tens}, "
        f"{_BOX}{total}}}"
    )


def make_base(
    *,
    cache: str,
    hidden_size: int,
    layers: int,
    heads: int,
    steps: int,
    batch: int,
    learning_rate: float,
    slips: float,
    forgotten_carries: float,
    held_out: int,
    seed: int,
    described_in: pathlib.Path | None = None,
) -> pathlib.Path:
    """Trains a base model and returns its Hugging Face folder.

    Args:
      cache: folder of the base models. A base's name contains a hash of `_VERSION` and
        the arguments. A base that is already there is not trained again.
      heads: number of query heads; two query heads share one key-value head.
      learning_rate: initial learning rate, which decays linearly to 0.
      slips: share of solutions with a random error in the sum of the units.
      forgotten_carries: share of solutions that write 0 as the carry, whatever it is.
        Above one half, the base forgets carries when it decodes greedily.
      described_in: if given, no base is trained. If the base is not in the cache,
        writes config and tokenizer to this folder and returns the folder.
    """
    settings = dict(locals())
    del settings["cache"], settings["described_in"]
    recipe = f"{_VERSION} {json.dumps(settings, sort_keys=True)}"
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    folder = pathlib.Path(cache) / f"arithmetic-{digest[:12]}"
    if (folder / WEIGHTS).exists():
        return folder
    tokens = make_tokenizer()
    raw = _hf_config(tokens, hidden_size, layers, heads)
    described = described_in or folder
    tokens.save_pretrained(described)
    (described / "config.json").write_text(json.dumps(raw, indent=2) + "\n")
    if described_in:
        return described
    with made_once(folder) as missing:
        if not missing:
            return folder
        # Every host trains the same base on its own devices.
        devices = jax.local_devices()
        count = math.gcd(batch, len(devices))
        mesh = make_mesh(data=count, fsdp=1, tensor=1, devices=devices[:count])
        model = Decoder(DecoderConfig.from_hf(raw), mesh=mesh)
        params = init_params(model, mesh, seed)
        corpus = _corpus(tokens, slips, forgotten_carries, held_out, seed)
        params = _pretrain(model, params, corpus, steps, batch, learning_rate, seed)
        save_folder(folder, params, model.config, assets=folder, dtype="float32")
    return folder


def make_tokenizer() -> Qwen2Tokenizer:
    r"""Builds a tokenizer of characters, with one token for "boxed" in `\boxed{`."""
    symbols = [*_SYMBOLS, *(left + right for left, right in _MERGES)]
    vocabulary = {symbol: i for i, symbol in enumerate(symbols)}
    # The annotations of transformers allow neither pairs nor unk_token=None.
    of_qwen: dict[str, Any] = {"merges": list(_MERGES), "unk_token": None}
    return Qwen2Tokenizer(vocab=vocabulary, **of_qwen)


def _hf_config(tokenizer, hidden_size, layers, heads) -> Mapping[str, Any]:
    eos = tokenizer.convert_tokens_to_ids(_EOS)
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": -(-len(tokenizer) // 40) * 40,  # padded, as in Qwen models
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "max_position_embeddings": 128,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "bos_token_id": eos,
        "eos_token_id": eos,
        "dtype": "float32",
    }


def _corpus(tokenizer, slips, forgotten_carries, held_out, seed) -> np.ndarray:
    """Returns token ids `[n, 48]` of training problems and solutions; -1 is padding."""
    rng = generator(seed, 1)
    rows = []
    for problem in problems(split="train", held_out=held_out, seed=seed):
        a, b = map(int, problem.problem.split("+"))
        slip = int(rng.choice([-2, -1, 1, 2])) if rng.random() < slips else 0
        if a % 10 + b % 10 + slip < 0:
            slip = -slip
        forget = bool(rng.random() < forgotten_carries)
        solution = worked_solution(a, b, slip=slip, forget_carry=forget)
        ids = tokenizer.encode(f"{problem.problem}?\n{solution}")
        ids.append(tokenizer.eos_token_id)
        rows.append(ids + [-1] * (_LENGTH - len(ids)))
    return np.array(rows, np.int32)


def _pretrain(model, params, corpus, steps, batch, learning_rate, seed):
    schedule = optax.linear_schedule(learning_rate, 0.0, steps)
    optimizer = optax.adamw(schedule, b2=0.95, weight_decay=0.01)

    def loss(params, rows):
        tokens, segments = jnp.maximum(rows, 0), jnp.ones_like(rows)
        positions = jnp.broadcast_to(jnp.arange(_LENGTH), rows.shape)
        hidden = model.apply({"params": params}, tokens, positions, segments)
        logits = hidden[:, :-1] @ head_table(params).T
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        real = rows[:, 1:] >= 0
        return jnp.sum(jnp.where(real, losses, 0)) / jnp.sum(real)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, opt_state, rows):
        value, grads = jax.value_and_grad(loss)(params, rows)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    # In the sharding that `step` returns; with another, `step` would compile twice.
    opt_state = jax.device_put(optimizer.init(params), named_sharding(model.mesh))
    rng = generator(seed, 2)
    with watch("base", total=steps, unit="steps") as count:
        for _ in range(steps):
            rows = corpus[rng.choice(len(corpus), batch, replace=False)]
            rows = jax.device_put(rows, named_sharding(model.mesh, "batch"))
            params, opt_state, value = step(params, opt_state, rows)
            value.block_until_ready()  # so that the progress bar counts finished steps
            count.update()
    line = f"base: next-token loss {float(value):.3f} nats after {steps} steps"
    print(line, file=sys.stderr, flush=True)
    return params
