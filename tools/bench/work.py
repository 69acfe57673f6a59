"""Defines the models and batches that are measured, and measures run times."""

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike

from configs import base
from models.config import DecoderConfig
from models.decoder import Decoder
from rl.base_model import model_from_config
from rl.errors import one_line
from rl.groups.packing import pack_segments, weigh
from rl.setup import make_update
from rl.types import Batch, Segment, make_hyper
from rl.update.objective import objective_from_config
from rl.update.step import Step
from rollout.cores import usable_cores
from sharding.mesh import make_mesh
from sharding.rules import named_sharding

T = TypeVar("T")
THIS = "this project"  # key of this project's figures in a result
SCALARS = make_hyper(
    learning_rate=1e-6, eps_low=0.2, eps_high=0.28, temperature=1.0, first_update=False
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """Holds the sizes of a Qwen2.5 model with tied embeddings, and of a batch."""

    vocab: int = 1024
    layers: int = 4
    hidden: int = 256
    heads: int = 8
    kv_heads: int = 4
    mlp: int = 1024
    groups: int = 4  # number of prompts
    group_size: int = 8  # completions per prompt
    prompt: int = 128  # tokens of each prompt
    completion: int = 128  # tokens of the longest completion
    lengths: str = "equal"  # or "lognormal", with p95/median = 4

    @property
    def rows(self) -> int:
        return self.groups * self.group_size

    def hf_config(self) -> dict[str, Any]:
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

    def transformers_model(self) -> Any:
        """Returns a transformers model with random weights."""
        import torch
        import transformers

        torch.manual_seed(0)
        config = transformers.Qwen2Config(**self.hf_config(), pad_token_id=0)
        return transformers.Qwen2ForCausalLM(config)

    def forward_flops(self, lengths: np.ndarray) -> float:
        """Returns the FLOPs of a forward pass over texts with the given lengths.

        Each length includes a prompt of `self.prompt` tokens. Counts the causal half of
        attention, and the head for completion tokens only.
        """
        head_dim = self.hidden // self.heads
        projections = 2 * self.hidden * head_dim * (self.heads + self.kv_heads)
        per_token = 2 * self.layers * (projections + 3 * self.hidden * self.mlp)
        lengths = lengths.astype(np.float64)
        attention = 2 * self.layers * self.hidden * lengths**2
        head = 2 * self.vocab * self.hidden * (lengths - self.prompt)
        return float(np.sum(per_token * lengths + attention + head))


# The models of `tools.gpu_check`.
_NAMES = "layers hidden heads kv_heads mlp vocab".split()
SIZES = {
    name: Shape(**dict(zip(_NAMES, sizes, strict=True)), lengths="lognormal")
    for name, sizes in {
        "0.5B": (24, 896, 14, 2, 4864, 151936),
        "1.5B": (28, 1536, 12, 2, 8960, 151936),
        "equal": (4, 256, 4, 2, 512, 4096),
        "tiny": (2, 64, 4, 2, 128, 1024),
    }.items()
}


def compare(
    result: dict[str, Any],
    peer: str,
    measure: Callable[[], Mapping[str, Any]],
    rate: str = "tokens_per_s",
) -> None:
    """Measures the Python package `peer`, if installed, and adds it to `result`.

    `measure` returns the figures of each case; if it fails, its error is added instead.
    "ratios" has, for each case of both, this project's `rate` divided by the peer's.
    """
    if importlib.util.find_spec(peer) is None:
        print(f"{peer}: not installed; install it to compare", file=sys.stderr)
        return
    result[peer] = {"version": importlib.metadata.version(peer.replace("_", "-"))}
    try:
        result[peer] |= measure()
    except Exception as error:  # this project's figures must still be printed
        result[peer]["failed"] = f"{type(error).__name__}: {one_line(error)[:400]}"
        print(f"{peer}: failed: {result[peer]['failed']}", file=sys.stderr)
    result["ratios"] = {
        f"{name} / {peer}": row[rate] / result[peer][name][rate]
        for name, row in result[THIS].items()
        if name in result[peer]
    }


def add_arguments(parser: argparse.ArgumentParser, **defaults: int) -> None:
    """Adds `--repeat` and flags for the fields of `Shape`."""
    sizes = dataclasses.asdict(Shape()) | {"repeat": 5} | defaults
    lengths, add = sizes.pop("lengths"), parser.add_argument
    add("--lengths", choices=("equal", "lognormal"), default=lengths)
    for name, default in sizes.items():
        add(f"--{name}", type=int, default=default)


def shape_of(arguments: argparse.Namespace) -> Shape:
    fields = [field.name for field in dataclasses.fields(Shape)]
    return Shape(**{name: getattr(arguments, name) for name in fields})


def make_segments(shape: Shape) -> list[Segment]:
    """Returns random texts without the token 0; those of a group share their prompt."""
    rng = np.random.default_rng(0)
    sizes = (shape.groups, shape.prompt), (shape.rows, shape.completion)
    prompts, completions = (rng.integers(1, shape.vocab - 1, size) for size in sizes)
    lengths = np.full(shape.rows, shape.completion)
    if shape.lengths == "lognormal":
        drawn = np.exp(rng.normal(0, np.log(4) / 1.645, shape.rows))
        lengths = np.maximum(1, np.rint(shape.completion * drawn / drawn.max()))
    texts = np.hstack([prompts.repeat(shape.group_size, axis=0), completions])
    advantages = rng.normal(size=shape.rows).astype(np.float32)
    return [
        Segment(
            group=i // shape.group_size,
            token_ids=texts[i, : shape.prompt + length].astype(np.int32),
            prompt_length=shape.prompt,
            sampler_logprobs=np.full(length, -6.9, np.float32),
            off_policy=np.zeros(length, bool),
            stale=np.zeros(length, bool),
            advantage=float(advantages[i]),
        )
        for i, length in enumerate(lengths.astype(int))
    ]


def make_batch(shape: Shape, rows: int, length: int) -> tuple[Shape, Batch, np.ndarray]:
    """Returns a micro-batch of `rows` rows of `length` tokens, with little padding.

    Uses only the model's sizes and `lengths` of `shape`. Also returns the shape of this
    batch, and the lengths of its texts.
    """
    prompt, groups = 150 if length >= 1024 else 8, max(2, rows * length // 2048)
    shape = dataclasses.replace(
        shape, prompt=prompt, completion=length - prompt, groups=groups, group_size=16
    )
    packed = pack_segments(
        make_segments(shape),
        row_lengths=(length,),
        micro_tokens=rows * length,
        row_multiple=1,
        share_prompts=False,
    )
    batch, *_ = weigh(packed, aggregation="token", constant=1)
    ids = np.asarray(batch.segment_ids)
    lengths = [np.unique(row[row > 0], return_counts=True)[1] for row in ids]
    return shape, batch, np.concatenate(lengths)


def error(found: Any, exact: Any) -> float:
    """Returns the relative error of `found` in the Euclidean norm."""
    a, b = (np.asarray(x, np.float64) for x in (found, exact))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def one_device() -> Mesh:
    return make_mesh(devices=jax.devices()[:1])


def make_trainer(
    shape: Shape,
    mesh: Mesh | None = None,
    *,
    deterministic: bool = False,
    **options: Any,
) -> tuple[Decoder, Step]:
    """Builds the model and the update of a run, by default on the first device.

    `options` sets keys of `config.model`.
    """
    config = base.get_config()
    config.deterministic = deterministic
    config.model.update(options)
    c = base.from_config(config)
    architecture = DecoderConfig.from_hf(shape.hf_config())
    model = model_from_config(c, architecture, mesh or one_device())
    return model, make_update(c, model, objective_from_config(c))


def measure(
    run: Callable[[], T], *, repeat: int = 5, inner: int = 1
) -> tuple[list[float], list[T]]:
    """Returns the mean seconds of `inner` calls and the last result, `repeat` times.

    Two more measurements come first as a warm-up. If `inner` exceeds 1, a GPU computes
    one result while the host launches the next call.
    """
    seconds, results = [], []
    for _ in range(2 + repeat):
        began = time.perf_counter()
        for _ in range(inner):
            result = run()
        jax.block_until_ready(result)
        seconds.append((time.perf_counter() - began) / inner)
        results.append(result)
    return seconds[2:], results[2:]


def median_seconds(
    run: Callable[[], object], *, repeat: int = 5, inner: int = 1
) -> float:
    """Returns the median seconds of a call; see `measure`."""
    return statistics.median(measure(run, repeat=repeat, inner=inner)[0])


def matmul_peak(size: int = 2048, dtype: DTypeLike = jnp.float32) -> float:
    """Returns the FLOP/s of multiplying two square matrices on all devices.

    The rows of the first matrix and of the product are split over the devices.
    """
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    rows, whole = named_sharding(mesh, "batch"), named_sharding(mesh)
    a, b = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
    a, b = jax.device_put(a, rows), jax.device_put(b, whole)
    product = jax.jit(jnp.matmul, out_shardings=rows)
    return 2 * size**3 / median_seconds(lambda: product(a, b), inner=9)


def machine() -> dict[str, Any]:
    return {
        "cores": usable_cores(),
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
