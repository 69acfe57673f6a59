"""Defines ablations that are ready to run, each in one file.

    python -m tools.ablate --config=configs/ablations/NAME.py --workdir=DIR

Each file defines an `ABLATION`, and each of its arms is a config, `FILE.py:ARM`. Read
`clip_higher` first; `configs.ablation` documents the classes.
"""
