"""Makes the sampler that uses vLLM servers, and the probe that checks their weights.

With several JAX processes, only process 0 calls the servers. The others take part in
work on all devices: gathering the weights, and the probe's forward pass.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils

from configs.base import RunConfig
from models import peft_folder
from models.decoder import Decoder, Params
from models.tensors import ADAPTERS, DTYPES, TABLE
from rl.base_model import base_name
from rl.types import Batch
from rl.update.objective import token_logprobs
from rollout.types import PolicySampler
from rollout.vllm import sampler as vllm
from rollout.vllm.client import api_key
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.placement import device_sets, make_servers
from rollout.vllm.server import ServerSpec
from sharding.rules import named_sharding, put_sharded, shards

_PROBE_LENGTH = 300


def make_vllm_sampler(
    c: RunConfig,
    *,
    model: Decoder,
    folder: pathlib.Path,
    workdir: pathlib.Path,
    prompt: Sequence[int],
) -> PolicySampler:
    """Makes a sampler that starts vLLM servers or connects to running ones.

    Every process calls this function. `model` is the trainer's decoder, `folder` the
    base model's folder, and `prompt` has token ids for the probe. Servers that it
    starts write logs to `workdir`. Published weights are written to
    `rollout.vllm.weight_dir`. If that is empty, they are written to shared memory or,
    if they do not fit there, to `workdir`.
    """
    v = c.rollout.vllm
    max_model_len = c.rollout.max_prompt_tokens + c.rollout.max_response_tokens
    dtype = v.dtype or str(np.dtype(model.dtype))
    config, rank, adapter_config = model.config, 0, ""
    tolerances = vllm.PROBE_TOLERANCE
    if v.publish == "adapter" and config.lora is not None:
        rank, tolerances = config.lora.rank, vllm.ADAPTER_PROBE_TOLERANCE
        adapter_config = peft_folder.describe(config, base=base_name(c, folder))
        export = vllm.Export(config, DTYPES[dtype], ADAPTERS)
    else:
        served = dataclasses.replace(config, tie_word_embeddings=False)
        export = vllm.Export(served, DTYPES[dtype], TABLE)
    urls = [part.strip() for part in v.url.split(",") if part.strip()]
    # Process 0 starts the servers, on the GPUs of its own machine.
    attached = urls or jax.process_index()
    sets = [] if attached else device_sets(v.devices, v.gpu_memory_utilization)
    chunk, count = c.model.head_chunk, len(urls) or len(sets)
    probe = make_probe(
        model, max_model_len=max_model_len, head_chunk=chunk, servers=count
    )
    if jax.process_index():
        return vllm.FollowerSampler(export, probe)
    spec = ServerSpec(
        python=v.python,
        model=str(folder),
        dtype=dtype,
        max_model_len=max_model_len,
        max_num_seqs=v.max_num_seqs,
        gpu_memory_utilization=v.gpu_memory_utilization or 0.9,
        api_key=api_key(),
        enforce_eager=v.enforce_eager,
        lora_rank=rank,
    )
    key = "config.rollout.vllm.python"
    return vllm.VllmSampler(
        fleet=ServerFleet(
            servers=make_servers(spec, sets, key=key, logs=workdir),
            urls=urls,
            api_key=api_key(),
            concurrency=v.max_num_seqs - 1,  # one slot stays free for the probe
        ),
        weights=vllm.WeightFolder(
            v.weight_dir,
            fallback=workdir / "weights",
            export=export,
            adapter_config=adapter_config,
        ),
        probe=probe,
        probe_prompt=probe_prompt(prompt, max_model_len),
        probe_tolerance=v.probe_tolerance or tolerances[dtype],
        max_model_len=max_model_len,
        in_flight="keep" if c.rollout.schedule == "async" else "abort",
    )


def probe_prompt(prompt: Sequence[int], max_model_len: int) -> list[int]:
    """Repeats or cuts `prompt` to 300 tokens; fewer if `max_model_len` requires it."""
    # 300 tokens fill several blocks of the key-value cache.
    length = max(1, min(_PROBE_LENGTH, max_model_len - vllm.PROBE_DRAW.max_tokens))
    return (list(prompt) * -(-length // len(prompt)))[:length]


def make_probe(
    model: Decoder, *, max_model_len: int, head_chunk: int, servers: int
) -> vllm.Probe:
    """Returns a function that computes the trainer's log-probabilities of sequences.

    The temperature is 1. One call takes at most `servers` sequences, each a result of
    `probe_prompt` followed by a completion. With several processes, all call
    `make_probe` and the returned function, which uses the sequences of process 0.
    """
    mesh = model.mesh
    assert mesh is not None
    rows = named_sharding(mesh, "batch")
    length = min(_PROBE_LENGTH + vllm.PROBE_DRAW.max_tokens, max_model_len)
    multiple = shards("batch", mesh)
    servers = int(multihost_utils.broadcast_one_to_all(np.int32(servers)))
    shape = -(-servers // multiple) * multiple, length

    def logprobs(params: Params, batch: Batch) -> jax.Array:
        scored = token_logprobs(model, params, batch, temperature=1.0, chunk=head_chunk)
        return scored[0]

    run = jax.jit(logprobs, out_shardings=named_sharding(mesh))

    def probe(params: Params, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        ids, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = sequence
            segments[row, : len(sequence)] = 1
        ids, segments = multihost_utils.broadcast_one_to_all((ids, segments))
        batch = Batch.padding(*shape).replace(
            token_ids=ids,
            positions=np.broadcast_to(np.arange(length, dtype=np.int32), shape),
            segment_ids=segments,
            loss_mask=segments > 0,
        )
        found = np.asarray(run(params, put_sharded(batch, rows)))
        return [found[row, : len(s)] for row, s in enumerate(sequences)]

    return probe
