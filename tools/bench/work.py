"""Defines the models and batches that benches measure, and measures run times."""

import argparse
import dataclasses
import platform
import statistics
import time
from collections.abc import Callable
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
from rl.groups.packing import pack, weigh
from rl.setup import make_update
from rl.types import Batch, Segment, make_hyper
from rl.update.objective import objective_from_config
from rl.update.step import Step
from rollout.cores import usable_cores
from sharding.mesh import make_mesh
from sharding.rules import laid_out

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

    def forward_flops(self, lengths: np.ndarray) -> float:
        """Returns the FLOPs of computing the loss of completions of the given lengths.

        Includes the prompt of each completion, the causal half of attention, and the
        head for completion tokens only.
        """
        head_dim = self.hidden // self.heads
        projections = 2 * self.hidden * head_dim * (self.heads + self.kv_heads)
        per_token = 2 * self.layers * (projections + 3 * self.hidden * self.mlp)
        lengths = lengths.astype(np.float64)
        total = self.prompt + lengths
        attention = 2 * self.layers * self.hidden * total**2
        head = 2 * self.vocab * self.hidden * lengths
        return float(np.sum(per_token * total + attention + head))


def add_arguments(parser: argparse.ArgumentParser, **defaults: int) -> None:
    """Adds `--repeat` and flags for the fields of `Shape`."""
    sizes = dataclasses.asdict(Shape()) | {"repeat": 5} | defaults
    parser.add_argument(
        "--lengths", choices=("equal", "lognormal"), default=sizes.pop("lengths")
    )
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)


def shape_of(arguments: argparse.Namespace) -> Shape:
    """Returns the shape that the flags of `add_arguments` give."""
    fields = [field.name for field in dataclasses.fields(Shape)]
    return Shape(**{name: getattr(arguments, name) for name in fields})


def make_tokens(shape: Shape) -> dict[str, np.ndarray]:
    """Returns a batch of random tokens; id 0 is padding.

    Returns:
      `prompts [n, P]`, `completions [n, C]` (padded at the right), `lengths [n]` and
      `advantages [n]` for the n completions. Those of a group have the same prompt.
    """
    rng = np.random.default_rng(0)
    prompts = rng.integers(1, shape.vocab - 1, (shape.groups, shape.prompt))
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


def make_batches(
    shape: Shape,
    tokens: dict[str, np.ndarray],
    *,
    row_length: int,
    micro_tokens: int,
    row_multiple: int = 1,
    share_prompts: bool = False,
) -> list[Batch]:
    """Packs the completions of `make_tokens` into micro-batches.

    The number of rows of each micro-batch is a multiple of `row_multiple`.
    """
    segments = [
        Segment(
            group=i // shape.group_size,
            token_ids=np.concatenate(
                [tokens["prompts"][i], tokens["completions"][i, :length]]
            ),
            prompt_length=shape.prompt,
            sampler_logprobs=np.full(length, -6.9, np.float32),
            off_policy=np.zeros(length, bool),
            stale=np.zeros(length, bool),
            advantage=float(tokens["advantages"][i]),
        )
        for i, length in enumerate(tokens["lengths"])
    ]
    packed = pack(
        segments,
        row_lengths=(row_length,),
        micro_tokens=micro_tokens,
        row_multiple=row_multiple,
        share_prompts=share_prompts,
    )
    return weigh(packed, aggregation="token", constant=shape.completion)


def one_device() -> Mesh:
    """Returns a mesh of the first device."""
    return make_mesh(devices=jax.devices()[:1])


def make_trainer(
    shape: Shape,
    mesh: Mesh | None = None,
    *,
    deterministic: bool = False,
    **options: Any,
) -> tuple[Decoder, Step]:
    """Builds the model and the update of a run, by default on the first device.

    `options` are values of keys of `config.model`.
    """
    config = base.get_config()
    config.deterministic = deterministic
    config.model.update(options)
    c = base.from_config(config)
    mesh = mesh or one_device()
    model = model_from_config(c, DecoderConfig.from_hf(shape.hf_config()), mesh)
    return model, make_update(c, model, objective_from_config(c))


def measure(
    run: Callable[[], T], *, repeat: int = 5, inner: int = 1
) -> list[tuple[float, T]]:
    """Measures a function `repeat` times, after two warm-up measurements.

    Args:
      run: the function. Times include waiting for the JAX arrays that it returns.
      repeat: number of measurements.
      inner: calls in each measurement. With more than 1, a GPU computes one result
        while the host launches the next, as in a program of many kernels.

    Returns:
      For each measurement, the mean seconds of a call, and the last call's result.
    """
    calls = []
    for _ in range(2 + repeat):
        began = time.perf_counter()
        for _ in range(inner):
            result = run()
        jax.block_until_ready(result)
        calls.append(((time.perf_counter() - began) / inner, result))
    return calls[2:]


def median_seconds(
    run: Callable[[], object], *, repeat: int = 5, inner: int = 1
) -> float:
    """Returns the median of the seconds that `measure` returns."""
    return statistics.median(s for s, _ in measure(run, repeat=repeat, inner=inner))


def matmul_peak(size: int = 2048, dtype: DTypeLike = jnp.float32) -> float:
    """Measures the FLOP/s of a square matrix product with rows split over devices."""
    mesh = make_mesh(data=-1, fsdp=1, tensor=1)
    rows, whole = laid_out(mesh, "batch"), laid_out(mesh)
    a, b = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
    a, b = jax.device_put(a, rows), jax.device_put(b, whole)
    product = jax.jit(jnp.matmul, out_shardings=rows)
    return 2 * size**3 / median_seconds(lambda: product(a, b), inner=9)


def machine() -> dict[str, Any]:
    """Returns the number of cores, the devices, and the versions of JAX and Python."""
    return {
        "cores": usable_cores(),
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
