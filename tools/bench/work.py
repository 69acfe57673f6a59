"""Makes the work of all contenders: shape, token ids, advantages, a clock.

Runs in the peers' environments: imports only NumPy.
"""

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np

# Seconds of each call, and the tokens that it says it made, if it does.
Timing = Mapping[str, list]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A tied Qwen2.5 model, fp32, and how many completions of which length it meets.

    Attributes:
      vocab, layers, hidden, heads, kv_heads, mlp: of the model.
      groups, group_size: prompts, and completions of each.
      prompt, completion: tokens; of completions the longest.
      page: tokens that all prompts begin with.
      lengths: "equal", or "lognormal" with p95/median = 4 and the same longest.
    """

    vocab: int = 1024
    layers: int = 4
    hidden: int = 256
    heads: int = 8
    kv_heads: int = 4
    mlp: int = 1024
    groups: int = 4
    group_size: int = 8
    prompt: int = 128
    completion: int = 128
    page: int = 0
    lengths: str = "equal"

    @property
    def rows(self) -> int:
        return self.groups * self.group_size

    def hf_config(self) -> dict:
        return {
            "model_type": "qwen2",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "max_position_embeddings": 32768,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
        }

    def forward_flops(self, lengths: np.ndarray) -> float:
        """Of one forward pass that does only what the loss needs.

        Matrix products, attention's causal half, the head at completion tokens alone.

        Args:
          lengths: of the completions.
        """
        head_dim = self.hidden // self.heads
        projections = 2 * self.hidden * head_dim * (self.heads + self.kv_heads)
        per_token = 2 * self.layers * (projections + 3 * self.hidden * self.mlp)
        lengths = lengths.astype(np.float64)
        total = self.prompt + lengths
        attention = 2 * self.layers * self.hidden * total**2
        head = 2 * self.vocab * self.hidden * lengths
        return float(np.sum(per_token * total + attention + head))


def make_tokens(shape: Shape, seed: int = 0) -> dict[str, np.ndarray]:
    """The work itself; id 0 is padding and the last id ends a text.

    Returns:
      `prompts [n, P]`, `completions [n, C]` (padded at the right), `lengths [n]` and
      `advantages [n]`; the rows of a group share their prompt.
    """
    rng = np.random.default_rng(seed)
    prompts = rng.integers(1, shape.vocab - 1, (shape.groups, shape.prompt))
    prompts[:, : shape.page] = prompts[0, : shape.page]
    size = (shape.rows, shape.completion)
    completions = rng.integers(1, shape.vocab - 1, size)
    lengths = np.full(shape.rows, shape.completion)
    if shape.lengths == "lognormal":
        drawn = np.exp(rng.normal(0, np.log(4) / 1.645, shape.rows))
        lengths = np.maximum(1, np.rint(shape.completion * drawn / drawn.max()))
        lengths = lengths.astype(int)
    completions[np.arange(shape.completion) >= lengths[:, None]] = 0
    return {
        "prompts": np.repeat(prompts, shape.group_size, axis=0).astype(np.int32),
        "completions": completions.astype(np.int32),
        "lengths": lengths.astype(np.int32),
        "advantages": rng.normal(size=shape.rows).astype(np.float32),
    }


def stop_ids(shape: Shape) -> list[int]:
    """Ids of which a random model draws one about every 50 tokens."""
    return list(range(shape.vocab - max(1, shape.vocab // 50), shape.vocab))


def contend(version: str, prepare: Callable[..., Mapping[str, Callable]]) -> None:
    """Measures a peer, in the process that `tools.bench.peers` has started for it.

    Args:
      version: of the peer, with its name.
      prepare: of the shape and of the arrays of `make_tokens` makes what can be called,
        by the names of measurements.
    """
    work, out, repeat, *what = sys.argv[1:]
    arrays = dict(np.load(work))
    runs = dict(prepare(Shape(**json.loads(str(arrays.pop("shape")))), arrays))
    timings = {name: measure(runs.pop(name), repeat=int(repeat)) for name in what}
    with open(out, "w") as file:
        json.dump({"version": version, "timings": timings}, file)


def measure(run: Callable[[], int | None], *, repeat: int) -> Timing:
    """Times `repeat` calls after two others."""
    for _ in range(2):
        run()
    seconds, tokens = [], []
    for _ in range(repeat):
        began = time.perf_counter()
        tokens.append(run())
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, "tokens": tokens}


def report(
    timings: Mapping[str, Timing], shape: Shape, lengths: np.ndarray
) -> dict[str, dict]:
    """Medians over the calls of each measurement.

    Args:
      timings: of `measure`, by name.
      shape: of the work.
      lengths: of its completions.
    """
    useful = int(lengths.sum()) + shape.rows * shape.prompt
    forward = shape.forward_flops(lengths)
    flops = {"update": 3 * forward, "logprobs": forward}
    rows = {}
    for name, timing in timings.items():
        seconds = timing["seconds"]
        made = [n or useful for n in timing["tokens"]]
        rates = [n / s for n, s in zip(made, seconds, strict=True)]
        rows[name] = {
            "median_s": statistics.median(seconds),
            "best_s": min(seconds),
            "tokens_per_s": statistics.median(rates),
            "best_tokens_per_s": max(rates),
        }
        if name in flops:
            rate = flops[name] / rows[name]["median_s"]
            rows[name]["gflop_per_s"] = rate / 1e9
    return rows
