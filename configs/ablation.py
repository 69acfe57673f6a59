"""Defines ablations: sets of runs ("arms") that each change a few keys of one config.

`tools.ablate` runs a file that defines an `ABLATION`. Each arm is a config as well:
`FILE.py:ARM` is the ablation's base config with the arm's changes, and
`FILE.py:ARM@BASE` is the config BASE with these changes.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from configs.reading import read_config

Arms = Mapping[str, Mapping[str, Any]]
SEPARATOR = "@"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ablation:
    """Defines the arms, the base config and the seeds of an ablation.

    Attributes:
      arms: for each arm, the values that it sets by dotted key; `{}` changes nothing.
      reference: the arm that all other arms are compared with.
      base: the config that the arms change, as a value of the flag `--config`.
      seeds: the random seeds with which each arm is run by default.

    Raises:
      ValueError: the reference is not an arm, the name of an arm is empty, has several
        words or contains "@", there are no seeds, or a seed occurs twice.
    """

    arms: Arms
    reference: str
    base: str = "configs/quickstart.py"
    seeds: Sequence[int] = (0, 1, 2)

    def __post_init__(self):
        if self.reference not in self.arms:
            known = ", ".join(self.arms)
            raise ValueError(f"reference={self.reference!r}: must be one of {known}")
        for arm in self.arms:
            if not arm or SEPARATOR in arm or len(arm.split()) > 1:
                raise ValueError(
                    f"arm {arm!r}: the name must not be empty or contain a space or @"
                )
        check_seeds(self.seeds)

    def get_config(self, text: str = "") -> ConfigDict:
        """Returns the config of "ARM" or "ARM@BASE"; no ARM means the reference."""
        arm, _, base = text.partition(SEPARATOR)
        arm = arm or self.reference
        if arm not in self.arms:
            raise ValueError(f"arm {arm!r}: must be one of {', '.join(self.arms)}")
        config = read_config(base or self.base)
        config.update_from_flattened_dict(self.arms[arm])
        return config


def check_seeds(seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={list(seeds)}: give at least one seed, and none twice")


def grid(axes: Mapping[str, Sequence[Any]]) -> Arms:
    """Returns an arm for each combination of values, named "KEY=VALUE,KEY=VALUE".

    KEY is the last part of the dotted key.
    """
    return {
        ",".join(
            f"{key.rpartition('.')[2]}={value}"
            for key, value in zip(axes, values, strict=True)
        ): dict(zip(axes, values, strict=True))
        for values in itertools.product(*axes.values())
    }
