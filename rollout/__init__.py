"""Samples completions, with the log-probability and policy version of each token.

Inputs: prompts as token ids, `SamplingParams`, and the weights of each publish.
Outputs: `Completion`s, each reported when it ends. A completion has up to `max_tokens`
tokens; unless `ignore_stop` is set, a stop token ends it. By default the stop tokens of
a run are all end tokens of the model folder.
Read `types` first; `jax_sampler` samples in the trainer, `vllm` with vLLM servers.
"""
