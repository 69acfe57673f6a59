"""Samples completions, with the log-probability and policy version of each token.

Inputs: prompts as token ids, `SamplingParams`, and the weights of each publish.
Outputs: `Completion`s, each reported when it ends.
Read `types` first; `jax_sampler` samples in the trainer, `vllm` with vLLM servers.
"""
