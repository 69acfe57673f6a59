"""What an update needs of each device's memory, by XLA's own count; nothing is run.

The step's programs are compiled ahead of time from shapes alone, for as many virtual
CPU devices as the mesh asks for, or with --tpu for a slice that need not be there
(`pip install 'jax[tpu]'`; e.g. v5e:4x4, v5p:2x2x2). XLA on a CPU widens bfloat16
products, and schedules for itself: its temporary memory is a guide, not a bound.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.attention import IMPLEMENTATIONS
from models.config import Qwen2Config
from models.qwen2 import REMAT_POLICIES, Qwen2, abstract_params
from rl.engine import make_hyper
from rl.optimizer import make_optimizer
from rl.step import Step, make_step
from rl.types import Batch
from sharding.mesh import AXES, make_mesh

_GIB = 2**30
_MODELS = {
    "0.5b": (24, 896, 14, 2, 4864, 151936, True),
    "1.5b": (28, 1536, 12, 2, 8960, 151936, True),
    "7b": (28, 3584, 28, 4, 18944, 152064, False),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=sorted(_MODELS), default="7b")
    parser.add_argument("--vocab", type=int, default=0, help="0: the model's")
    parser.add_argument("--data", type=int, default=1)
    parser.add_argument("--fsdp", type=int, default=8)
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--rows", type=int, default=8, help="of one micro-batch")
    parser.add_argument("--row_length", type=int, default=4096)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--moments_dtype", default="float32")
    parser.add_argument("--remat", choices=sorted(REMAT_POLICIES), default="full")
    parser.add_argument("--head_chunk", type=int, default=1024)
    parser.add_argument("--attention", choices=sorted(IMPLEMENTATIONS), default="xla")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--tpu", default="", metavar="TOPOLOGY")


def run(arguments: argparse.Namespace) -> dict:
    """Compiles and counts; see the module's docstring."""
    a = arguments
    mesh = _mesh(a)
    layers, hidden, heads, kv_heads, mlp, vocab, tied = _MODELS[a.model]
    config = Qwen2Config.from_hf(
        {
            "model_type": "qwen2",
            "vocab_size": a.vocab or vocab,
            "hidden_size": hidden,
            "intermediate_size": mlp,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "max_position_embeddings": 32768,
            "rope_theta": 1e6,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": tied,
        }
    )
    model = Qwen2(
        config,
        mesh=mesh,
        dtype=jnp.dtype(a.dtype),
        remat=a.remat,
        attention=a.attention,
    )
    optimizer = make_optimizer(
        b1=0.9, b2=0.99, eps=1e-8, weight_decay=0.0, max_grad_norm=1.0,
        moments_dtype=a.moments_dtype,
    )  # fmt: skip
    step = make_step(
        model,
        optimizer,
        mesh,
        temperature=1.0,
        head_chunk=a.head_chunk,
        dual_clip=None,
        correction="truncate",
        correction_cap=2.0,
        offload=a.offload,
    )
    return _count(step, model, (a.rows, a.row_length)) | {
        "asked": {k: v for k, v in vars(a).items() if not callable(v)}
    }


def _mesh(a: argparse.Namespace) -> Mesh:
    sizes = {axis: getattr(a, axis) for axis in AXES}
    if a.tpu:
        topology = topologies.get_topology_desc(topology_name=a.tpu, platform="tpu")
        return make_mesh(**sizes, devices=topology.devices)
    jax.config.update("jax_num_cpu_devices", int(np.prod(list(sizes.values()))))
    return make_mesh(**sizes)


def _count(step: Step, model: Qwen2, shape: tuple[int, int]) -> dict:
    def placed(tree, shardings):
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
            tree,
            shardings,
        )

    params, _ = abstract_params(model)
    state = placed(jax.eval_shape(step.init, params), step.shardings)
    batch = _batch(shape, step.rows)
    hyper = make_hyper(learning_rate=1e-6, eps_low=0.2, eps_high=0.28, first=False)
    carry = jax.eval_shape(step.zeros, state.params, batch, hyper)
    whole = NamedSharding(step.rows.mesh, PartitionSpec())
    carry = (
        placed(carry[0], step.shardings.params),
        *placed(carry[1:], jax.tree.map(lambda _: whole, carry[1:])),
    )
    accumulate = step.accumulate.lower(carry, state.params, batch, hyper).compile()
    apply = step.apply.lower(state, carry, hyper).compile()
    on_host = any(
        s.memory_kind == "pinned_host" for s in jax.tree.leaves(step.shardings)
    )
    moments = 0 if on_host else _device_bytes(state.opt_state)
    return {
        "parameters_gib": _device_bytes(state.params) / _GIB,
        "gradients_gib": _device_bytes(carry[0]) / _GIB,
        "optimizer_gib": moments / _GIB,
        "accumulate": _usage(accumulate),
        "apply": _usage(apply),
        "peak_gib": max(
            _usage(accumulate)["peak_gib"] + moments / _GIB, _usage(apply)["peak_gib"]
        ),
    }


def _batch(shape: tuple[int, int], rows: NamedSharding) -> Batch:
    def array(dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=rows)

    return Batch(
        token_ids=array(jnp.int32),
        positions=array(jnp.int32),
        segment_ids=array(jnp.int32),
        prefix_ids=array(jnp.int32),
        scored=array(bool),
        advantages=array(jnp.float32),
        loss_weights=array(jnp.float32),
        old_logprobs=array(jnp.float32),
        sampler_logprobs=array(jnp.float32),
        off_policy=array(bool),
    )


def _device_bytes(tree) -> int:
    return sum(
        int(np.prod(x.sharding.shard_shape(x.shape))) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )


def _usage(compiled) -> dict[str, float]:
    m = compiled.memory_analysis()
    peak = m.argument_size_in_bytes + m.temp_size_in_bytes
    peak += m.output_size_in_bytes - m.alias_size_in_bytes
    return {"temporary_gib": m.temp_size_in_bytes / _GIB, "peak_gib": peak / _GIB}
