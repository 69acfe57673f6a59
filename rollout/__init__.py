"""Sampling: prompts to completions, each token with its log-probability and version.

Enters: prompts as token ids, `SamplingParams`, and weights whenever a step publishes.
Leaves: `Completion`s, reported one by one as they end.
Begin at `types`; `jax_sampler` is the embedded sampler, `vllm` the one of servers.
"""
