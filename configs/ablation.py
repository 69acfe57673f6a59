"""Defines ablations: sets of runs ("arms") that each change a few keys of one config.

`tools.ablate` runs the ablation NAME of a file that defines `ABLATIONS`, a dict of
ablations by name, and `get_config = make_get_config(ABLATIONS)`. Each arm is then a
config as well: `FILE.py:NAME:ARM` is the ablation's base config with the arm's changes,
and `FILE.py:NAME:ARM@BASE` is the config BASE with these changes.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from configs.reading import read_config

Arms = Mapping[str, Mapping[str, Any]]
SEPARATOR = "@"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ablation:
    """Defines the arms, the base config and the seeds of an ablation.

    Attributes:
      question: what the arms are compared for; the report begins with it.
      arms: for each arm, the values that it sets by dotted key; `{}` changes nothing.
        The first arm is the reference, with which all others are compared.
      base: the config that the arms change, as a value of the flag `--config`.
      seeds: the random seeds with which each arm is run by default.

    Raises:
      ValueError: there are no arms, or an arm's name is empty, has several words or
        contains "@".
    """

    question: str
    arms: Arms
    base: str = "configs/quickstart.py"
    seeds: Sequence[int] = (0, 1, 2)

    def __post_init__(self):
        if not self.arms:
            raise ValueError("arms={}: give at least one, the reference")
        for arm in self.arms:
            if not arm or SEPARATOR in arm or len(arm.split()) > 1:
                raise ValueError(
                    f"arm {arm!r}: the name must not be empty or contain a space or @"
                )

    @property
    def reference(self) -> str:
        return next(iter(self.arms))


def find_ablation(ablations: Mapping[str, Ablation], name: str) -> Ablation:
    if name not in ablations:
        raise ValueError(f"ablation {name!r}: must be one of {', '.join(ablations)}")
    return ablations[name]


def make_get_config(ablations: Mapping[str, Ablation]) -> Callable[[str], ConfigDict]:
    """Returns the function that maps "NAME", "NAME:ARM" or "NAME:ARM@BASE" to a config.

    Without ARM, the config is that of the reference.
    """

    def get_config(text: str = "") -> ConfigDict:
        which, _, base = text.partition(SEPARATOR)
        name, _, arm = which.partition(":")
        ablation = find_ablation(ablations, name)
        arm = arm or ablation.reference
        if arm not in ablation.arms:
            raise ValueError(f"arm {arm!r}: must be one of {', '.join(ablation.arms)}")
        config = read_config(base or ablation.base)
        config.update_from_flattened_dict(ablation.arms[arm])
        return config

    return get_config


def grid(axes: Mapping[str, Sequence[Any]]) -> Arms:
    """Returns an arm for each combination of values, named "KEY=VALUE,KEY=VALUE".

    KEY is the last part of the dotted key.
    """
    every = itertools.product(*axes.values())
    return {
        ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in arm.items()): arm
        for arm in (dict(zip(axes, values, strict=True)) for values in every)
    }
