"""Samples with vLLM servers that the trainer updates and, by default, also starts.

Inputs: prompts; at each publish, parameters, which servers read from a file.
Outputs: completions over HTTP, with the policy version that sampled each token.
Read `sampler` first; `server` starts a process, and `extension` runs inside vLLM.
"""
