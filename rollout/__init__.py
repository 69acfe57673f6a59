"""Samples completions, with the log-probability and policy version of each token.

Inputs: prompts as token ids, `SamplingParams`, and the weights of each publish.
Outputs: `Completion`s, each reported when it ends. A completion ends with the first id
of `SamplingParams.stop_token_ids`, which a run sets to all end tokens of the model
folder by default, or when it has `max_tokens` tokens.
Read `types` first; `jax_sampler` samples in the trainer, `vllm` with vLLM servers.
"""
