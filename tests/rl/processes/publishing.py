"""A publish by several processes.

Usage: python -m tests.rl.processes.publishing I N PORT S, for process I of N at PORT.
All but the first start S seconds late. The first prints what it exported and scored,
the same whatever N is.
"""

import hashlib
import sys
import time

import jax
import numpy as np

from models.config import DecoderConfig
from models.decoder import Decoder, init_params
from models.tensors import TABLE
from rl.processes.devices import join_cpu_devices, start_cpu_devices
from rl.sampler_servers import make_probe
from rollout.vllm.sampler import Export, FollowerSampler
from sharding.mesh import make_mesh

DEVICES = 4
CONFIG = DecoderConfig(
    vocab_size=96, hidden_size=64, intermediate_size=64, num_layers=2, num_heads=2,
    num_kv_heads=1, head_dim=32, rope_theta=1e4, rms_norm_eps=1e-6,
    tie_word_embeddings=True, max_positions=64,
)  # fmt: skip


def publish(index: int = 0) -> str:
    mesh = make_mesh(fsdp=DEVICES, devices=jax.devices()[:DEVICES])
    join_cpu_devices(mesh)
    model = Decoder(CONFIG, mesh=mesh)
    params = init_params(model, mesh, seed=0)

    export = Export(CONFIG, np.dtype(np.float32), TABLE)
    probe = make_probe(model, max_model_len=48, head_chunk=64, servers=2)
    if index:
        FollowerSampler(export, probe).publish(params, 1)
        return ""
    digest = hashlib.sha256()
    for name, array in export.tensors(params):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    scored = probe(params, [list(range(40)), [5, 6, 7]])
    figures = [*np.round(scored[0][1:4], 4), *np.round(scored[1][1:], 4)]
    return f"{digest.hexdigest()} {figures}"


if __name__ == "__main__":
    index, count, port, late = map(int, sys.argv[1:])
    jax.config.update("jax_platforms", "cpu")
    start_cpu_devices(DEVICES // count, rows=DEVICES)
    jax.distributed.initialize(f"127.0.0.1:{port}", count, index)
    time.sleep(late if index else 0)
    print("result", publish(index))
