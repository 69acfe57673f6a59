"""Compares signal and uniform sampling of problems if most groups have no signal."""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        "uniform": {},
        "signal": {"sampling.policy": "signal"},
    },
    reference="uniform",
    base="configs/uneven_sums.py",
)
