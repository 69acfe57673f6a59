"""Defines ablations that are ready to run, each in one file.

    python -m tools.ablate --config=configs/ablations/NAME.py --workdir=DIR

Each arm of an ablation is a config too, `FILE.py:ARM`. Read `clip_higher` first.
"""
