"""Samples with vLLM servers that the trainer starts, updates and supervises.

Enters: prompts; at a publish, parameters, which become a file that the servers read.
Leaves: completions over HTTP, with the version that sampled each token.
Begin at `sampler`; `server` starts a process, and `extension` runs inside vLLM.
"""
