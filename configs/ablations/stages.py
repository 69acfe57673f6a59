"""Do stages of difficulty help? Those of the quickstart, against all levels at once."""

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
