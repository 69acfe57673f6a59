"""Compares ways to treat groups whose completions are all right or all wrong.

`off` trains on these groups too. Their advantages are zero, so they only add to the
number of tokens by which the loss is divided. `filter` drops these groups, so batches
are smaller. `refill`, the method of Compass-Thinker and DAPO, also drops them, and
samples further groups until the batch is full.
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
