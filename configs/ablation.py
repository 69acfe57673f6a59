"""Ablations: runs that differ from one config in a few keys each, their arms.

A file that defines one as `ABLATION` is what `tools.ablate` runs, and each of its arms
is a config: `FILE.py:ARM`, or with another base than its own `FILE.py:ARM@BASE`.
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
    """What is varied.

    Attributes:
      arms: what each sets, by dotted keys of the config; nothing leaves the base as it
        is.
      reference: the arm that all others are compared with.
      base: the config that they change, as `--config` names one.
      seeds: each arm is run with each.

    Raises:
      ValueError: the reference is not an arm, a name could be mistaken for a base, or a
        seed comes twice.
    """

    arms: Arms
    reference: str
    base: str = "configs/quickstart.py"
    seeds: Sequence[int] = (0, 1, 2)

    def __post_init__(self):
        if self.reference not in self.arms:
            raise ValueError(f"reference={self.reference!r}: is not an arm")
        for arm in self.arms:
            if not arm or SEPARATOR in arm or len(arm.split()) > 1:
                raise ValueError(f"arm {arm!r}: a name has no space and no @")
        check_seeds(self.seeds)

    def get_config(self, text: str = "") -> ConfigDict:
        """An arm's config.

        Args:
          text: "ARM", "ARM@BASE" or "@BASE"; without an arm it is the reference.
        """
        arm, _, base = text.partition(SEPARATOR)
        arm = arm or self.reference
        if arm not in self.arms:
            raise ValueError(f"arm {arm!r}: must be one of {', '.join(self.arms)}")
        config = read_config(base or self.base)
        config.update_from_flattened_dict(self.arms[arm])
        return config


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuses none, and one twice: its run would count twice."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={list(seeds)}: give some, each once")


def grid(axes: Mapping[str, Sequence[Any]]) -> Arms:
    """Arms for every combination of values, named `key=value,key=value`.

    Args:
      axes: the values of each dotted key; the last part of it makes the name.
    """
    return {
        ",".join(
            f"{key.rpartition('.')[2]}={value}"
            for key, value in zip(axes, values, strict=True)
        ): dict(zip(axes, values, strict=True))
        for values in itertools.product(*axes.values())
    }
