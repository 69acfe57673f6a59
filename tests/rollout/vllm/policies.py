"""A small policy in JAX on a mesh, its servers, and an independent forward pass."""

import dataclasses
import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from models.config import DecoderConfig
from models.decoder import Decoder, head_table
from models.hf import load_params
from models.tensors import DTYPES, TABLE, export_tensors
from rollout.types import SamplingParams
from rollout.vllm.fleet import ServerFleet
from rollout.vllm.sampler import Export, VllmSampler, WeightFolder
from rollout.vllm.server import ServerProcess, ServerSpec
from sharding.mesh import make_mesh
from tests.models import reference
from tests.other_processes import ROOT

PYTHON = os.environ.get("VLLM_PYTHON", str(ROOT / ".venv-vllm/bin/python"))
LENGTH = 512
STOP = (1, 7)
TINY = dict(
    hidden_size=128,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=512,
)


def make_folder(
    folder, family="Qwen2", *, tied=True, dtype="float32", sizes=TINY, scale=0.08
):
    """A random model whose every parameter matters."""
    torch.manual_seed(0)
    sizes = {**reference.FAMILIES[family], **sizes}
    sizes |= dict(max_position_embeddings=1024, tie_word_embeddings=tied)
    sizes |= dict(bos_token_id=0, eos_token_id=1, use_sliding_window=False)
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, scale)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return folder


@dataclasses.dataclass
class Policy:
    """A trainer's parameters on a mesh, their export and their log-probs."""

    folder: pathlib.Path
    dtype: str
    params: dict
    model: Decoder

    @classmethod
    def load(cls, folder, dtype="float32", fsdp=4, tensor=2):
        mesh = make_mesh(
            fsdp=fsdp, tensor=tensor, devices=jax.devices()[: fsdp * tensor]
        )
        kind = jnp.dtype(DTYPES[dtype])
        model = Decoder(
            DecoderConfig.from_folder(folder), mesh, dtype=kind, param_dtype=kind
        )
        return cls(folder, dtype, load_params(folder, model, mesh), model)

    def changed(self, seed, scale=0.02):
        """The policy after a random update of every parameter."""
        keys = jax.random.split(jax.random.key(seed), 64)
        leaves, tree = jax.tree.flatten(self.params)
        moved = [
            leaf + scale * jax.random.normal(key, leaf.shape, leaf.dtype)
            for leaf, key in zip(leaves, keys, strict=False)
        ]
        return dataclasses.replace(self, params=tree.unflatten(moved))

    def export(self, params):
        return export_tensors(params, self.model.config, DTYPES[self.dtype])

    def published(self):
        served = dataclasses.replace(self.model.config, tie_word_embeddings=False)
        return Export(served, DTYPES[self.dtype], TABLE)

    def probe(self, params, sequences):
        """The trainer's own log-probs, as the sampler calls it."""
        found = []
        for token_ids in sequences:
            ids = np.zeros((1, LENGTH), np.int32)
            ids[0, : len(token_ids)] = token_ids
            scored = np.asarray(_score(self.model.clone(mesh=None), params, ids))
            found.append(np.concatenate([[0.0], scored[: len(token_ids) - 1]]))
        return found

    def reference(self, token_ids, *, temperature=1.0, top_p=1.0):
        """Log-probs of a sequence by transformers in float32, from exported tensors."""
        if not hasattr(self, "_torch"):
            config = transformers.AutoConfig.from_pretrained(self.folder)
            model = transformers.AutoModelForCausalLM.from_config(config)
            model = model.float().eval()
            state = {
                name: torch.from_numpy(np.array(array, np.float32))
                for name, array in self.export(self.params)
            }
            if config.tie_word_embeddings:
                state["lm_head.weight"] = state["model.embed_tokens.weight"]
            model.load_state_dict(state)
            self._torch = model
        ids = torch.tensor(token_ids)
        with torch.no_grad():
            logits = self._torch(ids[None, :-1]).logits[0] / temperature
        logprobs = logits.log_softmax(-1)
        if top_p < 1:
            ordered, order = logprobs.sort(-1, descending=True)
            before = ordered.exp().cumsum(-1) - ordered.exp()
            outside = torch.zeros_like(logprobs, dtype=torch.bool)
            outside.scatter_(-1, order, before >= top_p)
            logprobs = logprobs.masked_fill(outside, -torch.inf).log_softmax(-1)
        drawn = logprobs.gather(1, ids[1:, None])[:, 0].numpy()
        return np.concatenate([[0.0], drawn])


@functools.partial(jax.jit, static_argnums=0)
def _score(model, params, ids):
    ones = jnp.ones_like(ids)
    hidden = model.apply({"params": params}, ids, jnp.arange(LENGTH)[None], ones)
    logits = (hidden[0] @ head_table(params).T.astype(hidden.dtype)).astype(jnp.float32)
    logprobs = jax.nn.log_softmax(logits[:-1])
    return jnp.take_along_axis(logprobs, ids[0, 1:, None], axis=1)[:, 0]


def needs_vllm():
    if not pathlib.Path(PYTHON).exists():
        pytest.fail(f"no vLLM environment at {PYTHON}: `make vllm`, or set VLLM_PYTHON")


def make_server(policy, tmp, **changes):
    needs_vllm()
    settings = dict(
        python=PYTHON,
        model=str(policy.folder),
        dtype=policy.dtype,
        max_model_len=LENGTH,
        max_num_seqs=64,
        enforce_eager=True,
    )
    return ServerProcess(ServerSpec(**settings | changes), log_file=tmp / "vllm.log")


def make_sampler(
    policy,
    tmp,
    *,
    folder="/dev/shm",
    weights=None,
    tolerance=1e-4,
    max_model_len=LENGTH,
    in_flight="abort",
    **fleet,
):
    """Makes a sampler whose probe is the policy's own forward pass."""
    if not fleet.keys() & {"servers", "urls"}:
        fleet["servers"] = [make_server(policy, tmp)]
    weights = weights or dict(export=policy.published())
    return VllmSampler(
        fleet=ServerFleet(**{"concurrency": 63, **fleet}),
        weights=WeightFolder(str(folder), fallback=tmp, **weights),
        probe=policy.probe,
        probe_prompt=prompts(1, low=300, high=301)[0],
        probe_tolerance=tolerance,
        max_model_len=max_model_len,
        in_flight=in_flight,
    )


def prompts(count, *, low=16, high=200, seed=0, vocab=512):
    rng = np.random.default_rng(seed)
    return [
        rng.integers(2, vocab, rng.integers(low, high)).tolist() for _ in range(count)
    ]


def draw(max_tokens, n=1, **changes):
    settings = dict(stop_token_ids=(), ignore_stop=True) | changes
    return SamplingParams(n=n, max_tokens=max_tokens, **settings)


def gaps(policy, prompts, groups, **kwargs):
    """|sampler - reference| of every sampled token."""
    found = []
    for prompt, group in zip(prompts, groups, strict=True):
        for completion in group:
            ids = [*prompt, *completion.token_ids.tolist()]
            own = policy.reference(ids, **kwargs)[len(prompt) :]
            found.append(np.abs(own - completion.sampler_logprobs))
    return np.concatenate(found)
