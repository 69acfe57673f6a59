"""Samples with vLLM servers that the trainer starts, updates and supervises.

Inputs: prompts; at a publish, parameters, which are written to a file for the servers.
Outputs: completions over HTTP, with the policy version that sampled each token.
Read `sampler` first; `server` starts a process, and `extension` runs inside vLLM.
"""
