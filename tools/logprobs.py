"""Computes the log-probability of each token of a text under a model.

from tools.logprobs import logprobs

for text in logprobs("runs/quickstart", ["12+34?\\n2+4=6, so 36"]):
    print(text.tokens, text.logprobs)
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence

import jax
import numpy as np

from models.hf import load_params
from rl.problems.templates import begin_of_text, check_text
from rl.types import Batch
from rl.update.objective import token_logprobs
from sharding.rules import named_sharding, put_sharded
from tools.evaluation.pretrained import Pretrained, find_pretrained, split_model


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoredText:
    """Holds a text's tokens and the log-probability of each token given its prefix."""

    token_ids: np.ndarray  # int32 [n]; starts with a begin-of-text token, if any
    tokens: Sequence[str]  # the same tokens, each decoded to text
    logprobs: np.ndarray  # in nats, float32 [n]; the first is NaN


def logprobs(
    model: str | os.PathLike, texts: Sequence[str], *, dtype: str = "auto"
) -> list[ScoredText]:
    """Returns the log-probabilities of texts; no prompt template is added.

    Args:
      model: a Hugging Face folder, a run's workdir with an exported model, or a hub id.
      texts: the texts; at least one must not be empty.
      dtype: "float32", "bfloat16", "float16", or "auto" for the dtype of config.json.

    Raises:
      ValueError: the model cannot be used, or a text cannot be encoded or exceeds the
        model's positions.
    """
    if not any(texts):
        raise ValueError(f"texts={[*texts]}: at least one text must not be empty")
    found = find_pretrained(model, dtype)
    begin, bare = encode_texts(found, texts)
    ids = [begin + of_text for of_text in bare]
    scores = score(found, ids, context=max(map(len, ids)))
    return [
        ScoredText(
            token_ids=np.array(of_text, np.int32),
            tokens=[str(found.tokenizer.decode([i])) for i in of_text],
            logprobs=scored,
        )
        for of_text, scored in zip(ids, scores, strict=True)
    ]


def encode_texts(
    model: Pretrained, texts: Sequence[str]
) -> tuple[list[int], list[list[int]]]:
    """Returns the begin-of-text tokens, and the tokens of each text without them."""
    tokenizer, size = model.tokenizer, model.config.vocab_size
    begin = tokenizer.encode(begin_of_text(tokenizer), add_special_tokens=False)
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    for i, (text, of_text) in enumerate(zip(texts, ids, strict=True), 1):
        check_text(tokenizer, text, of_text, vocab_size=size, what=f"text {i}")
    return begin, ids


def score(
    found: Pretrained,
    sequences: Sequence[Sequence[int]],
    *,
    context: int,
    on_scored: Callable[[int], object] = lambda count: None,
) -> list[np.ndarray]:
    """Loads a model and returns the log-probabilities of sequences of token ids.

    The sequences have at most `context` tokens. Their first log-probability is NaN.
    `on_scored` gets the number of sequences of each scored batch.

    Raises:
      ValueError: `context` exceeds the model's positions, or the weights are not valid.
    """
    folder, positions = found.folder, found.config.max_positions
    if context > positions:
        raise ValueError(
            f"{context} tokens exceed the {positions} positions of {folder}; shorten"
            " the texts or their windows (--context)"
        )
    model, mesh = split_model(found)
    params = load_params(folder, model, mesh)
    run = jax.jit(functools.partial(token_logprobs, model, temperature=1.0, chunk=1024))
    result = []
    for start in range(0, len(sequences), mesh.size):
        some = sequences[start : start + mesh.size]
        batch = Batch.padding(mesh.size, context)
        for row, ids in enumerate(some):
            batch.token_ids[row, : len(ids)] = ids
            batch.positions[row, : len(ids)] = np.arange(len(ids))
            batch.segment_ids[row, : len(ids)] = 1
            batch.loss_mask[row, 1 : len(ids)] = True
        scored, _ = run(params, put_sharded(batch, named_sharding(mesh, "batch")))
        rows = np.array(scored, np.float32)
        rows[:, 0] = np.nan
        result += [rows[row, : len(ids)] for row, ids in enumerate(some)]
        on_scored(len(some))
    return result
