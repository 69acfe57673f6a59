"""Tunix on the work of `tools.bench`; run by `tools.bench.peers` with its interpreter.

The update is Tunix's own jitted train step with its GRPO policy loss under a
`DAPOConfig` and AdamW; sampling is its vanilla sampler.
"""

import functools
import importlib.metadata
import itertools

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from tunix.generate import sampler as samplers
from tunix.models.qwen2 import model as qwen2
from tunix.rl import common, function_registry
from tunix.rl import trainer as trainers
from tunix.rl.grpo import dapo_learner, grpo_learner
from tunix.sft import peft_trainer
from work import Shape, contend, stop_ids


def prepare(shape: Shape, arrays) -> dict:
    makers = {
        "update": _update,
        "logprobs": _logprobs,
        "sample": functools.partial(_sample, temperature=1.0, top_p=1.0),
        "sample_top_p": functools.partial(_sample, temperature=1.0, top_p=0.95),
        "greedy": functools.partial(_sample, temperature=0.0),
        "mixed": functools.partial(_sample, temperature=1.0, top_p=1.0, stopping=True),
    }

    def lazily(make):
        made = functools.cache(lambda: make(shape, arrays))
        return lambda: made()()

    return {name: lazily(make) for name, make in makers.items()}


def _model(shape: Shape) -> qwen2.Qwen2:
    config = qwen2.ModelConfig(
        num_layers=shape.layers,
        vocab_size=shape.vocab,
        embed_dim=shape.hidden,
        hidden_dim=shape.mlp,
        num_heads=shape.heads,
        head_dim=shape.hidden // shape.heads,
        num_kv_heads=shape.kv_heads,
        rope_theta=10000,
        norm_eps=1e-6,
        use_tied_embedding=True,
    )
    model = qwen2.Qwen2(config, rngs=nnx.Rngs(0))
    # Its MLP kernels are created_step zero.
    noise = jax.tree.map(
        lambda x: (
            0.02 * jax.random.normal(jax.random.key(1), x.shape) if x.ndim > 1 else x
        ),
        nnx.state(model, nnx.Param),
    )
    nnx.update(model, noise)
    return model


def _update(shape: Shape, arrays):
    config = dapo_learner.DAPOConfig(
        num_generations=shape.group_size, overlong_buffer=None
    )
    config.temperature = 1.0
    loss = function_registry.get_policy_loss_fn(config.policy_loss_fn)
    trainer = trainers.Trainer(
        _model(shape),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-6)),
        peft_trainer.TrainingConfig(eval_every_n_steps=10**9, max_steps=10**9),
        custom_checkpoint_metadata_fn=dict,
    )

    def loss_of(model, train_example, algo_config):
        return loss(
            model,
            train_example,
            algo_config=config,
            pad_id=0,
            eos_id=shape.vocab - 1,
        )

    trainer.with_loss_fn(loss_of, has_aux=True)
    trainer.with_gen_model_input_fn(
        lambda x: {"train_example": x, "algo_config": config}
    )
    prompts, completions = arrays["prompts"], arrays["completions"]
    example = grpo_learner.TrainExample(
        prompt_ids=jnp.asarray(prompts),
        prompt_mask=jnp.asarray(prompts != 0),
        completion_ids=jnp.asarray(completions),
        completion_mask=jnp.asarray(completions != 0),
        ref_per_token_logps=None,
        advantages=jnp.asarray(arrays["advantages"]),
        old_per_token_logps=jnp.full(completions.shape, -6.9),
    )
    step, _ = trainer.jit_train_and_eval_step(cache_nnx_graph=True)

    def update():
        jax.block_until_ready(step(example))

    return update


def _logprobs(shape: Shape, arrays):
    graph, state = nnx.split(_model(shape))
    prompts, completions = map(jnp.asarray, (arrays["prompts"], arrays["completions"]))

    def logprobs():
        jax.block_until_ready(
            common.compute_per_token_logps(
                graph, state, prompts, completions, pad_id=0, eos_id=shape.vocab - 1
            )
        )

    return logprobs


class _Words:
    """Token ids as text, which is what its sampler takes."""

    def __init__(self, vocab):
        self._last = vocab - 1

    def encode(self, text, **_):
        return [int(word) for word in text.split()]

    def decode(self, ids, **_):
        return " ".join(map(str, ids))

    def bos_id(self):
        return None

    def eos_id(self):
        return self._last

    def pad_id(self):
        return 0


def _sample(shape: Shape, arrays, *, stopping=False, **options):
    end = shape.vocab - 1
    ends = (
        {"eos_tokens": stop_ids(shape)}
        if stopping
        else {"forbidden_tokens": [end], "eos_tokens": [end]}
    )
    sampler = samplers.Sampler(
        _model(shape),
        _Words(shape.vocab),
        samplers.CacheConfig(
            cache_size=shape.prompt + shape.completion,
            num_layers=shape.layers,
            num_kv_heads=shape.kv_heads,
            head_dim=shape.hidden // shape.heads,
        ),
    )
    texts = [" ".join(map(str, prompt)) for prompt in arrays["prompts"]]
    seeds = itertools.count()

    def sample():
        output = sampler(
            texts,
            max_generation_steps=shape.completion,
            max_prompt_length=shape.prompt,
            seed=next(seeds),
            **ends,
            **options,
        )
        return sum(len(tokens) for tokens in output.tokens)

    return sample


if __name__ == "__main__":
    version = importlib.metadata.version("google-tunix")
    contend(f"google-tunix {version}", prepare)
