"""Do draws that teach save completions, where most groups teach nothing?"""

from configs.ablation import Ablation

_SIGNAL = {"sampling.policy": "signal"}

ABLATION = Ablation(
    arms={
        "uniform": {},
        "signal": _SIGNAL,
        "signal,first=4": _SIGNAL | {"sampling.first": 4},
    },
    reference="uniform",
    base="configs/uneven_sums.py",
)
get_config = ABLATION.get_config
