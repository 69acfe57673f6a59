"""Trains the quickstart's model in three stages, from easy sums to all sums.

Command:   python -m rl.train --config=configs/quickstart_staged.py --workdir=DIR
Hardware:  two CPU cores, no GPU, no download.

The level of a sum is 1, plus 1 for each two-digit summand and for each carry. The
first two stages end early if accuracy over 5 steps is at least 0.8. The last stage
samples each level about as often as it occurs among all sums.
"""

from ml_collections import ConfigDict

from configs import quickstart


def get_config() -> ConfigDict:
    c = quickstart.get_config()
    early = {
        "steps": 60,
        "advance": {"metric": "accuracy", "at_least": 0.8, "window": 5},
    }
    c.curriculum.stages = (
        {"name": "easy", "levels": {"2": 0.3, "3": 0.7}, **early},
        {"name": "carries", "levels": {"3": 0.2, "4": 0.4, "5": 0.4}, **early},
        {
            "name": "all",
            "levels": {"1": 0.01, "2": 0.1, "3": 0.27, "4": 0.38, "5": 0.24},
        },
    )
    return c
