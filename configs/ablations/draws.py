"""Do draws that teach save completions, where most groups teach nothing?"""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        "uniform": {},
        "signal": {"sampling.policy": "signal"},
    },
    reference="uniform",
    base="configs/uneven_sums.py",
)
