"""Sampling by vLLM servers: processes that are started, fed with weights and mended.

Enters: what every sampler takes; a publish becomes files that the servers read.
Leaves: completions over HTTP, with the version that drew each token.
Begin at `sampler`; `server` starts a process, and `extension` runs inside vLLM.
"""
