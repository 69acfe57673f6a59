"""Compares the values of `sampling.policy` on problems that mostly give no gradient."""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={"uniform": {}, "signal": {"sampling.policy": "signal"}},
    reference="uniform",
    base="configs/uneven_sums.py",
)
