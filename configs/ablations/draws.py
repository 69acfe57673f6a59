"""Compares the two values of `sampling.policy` if most problems give no gradient."""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        "uniform": {},
        "signal": {"sampling.policy": "signal"},
    },
    reference="uniform",
    base="configs/uneven_sums.py",
)
