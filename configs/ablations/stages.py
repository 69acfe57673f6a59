"""Compares the quickstart in stages of difficulty with training on all levels."""

from configs import quickstart_staged
from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        "plain": {},
        "staged": {
            "curriculum.stages": quickstart_staged.get_config().curriculum.stages
        },
    },
    reference="plain",
)
