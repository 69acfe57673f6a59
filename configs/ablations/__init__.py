"""Ablations that are ready to run: each file says in a few lines what is varied.

Enters: nothing; a file is given by `--config` to `tools.ablate`.
Leaves: its `ABLATION`, and each arm's config, `FILE.py:ARM`.
Begin at `clip_higher`; `configs.ablation` says what an ablation is.
"""
