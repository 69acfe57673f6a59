"""Does it help to drop groups that teach nothing, and to sample others in their place?

`off` trains on every group; those that teach nothing have no advantage and count only
in the mean over tokens. `filter` leaves them out, so that a batch is as large as what
is left. `refill` is the paper's: rounds until the batch is full.
"""

from configs.ablation import Ablation

ABLATION = Ablation(
    arms={
        "refill": {},
        "filter": {
            "dynamic_sampling.max_rounds": 1,
            "dynamic_sampling.oversample": 1.0,
            "dynamic_sampling.on_shortfall": "partial",
        },
        "off": {"dynamic_sampling.filter": False},
    },
    reference="refill",
)
