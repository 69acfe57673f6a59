"""From a config to the machines that it was fitted to.

`configs/NAME.py:HARDWARE` takes the mesh, micro-batch and remat that were chosen for it
with `tools.plan` (docs/scaling.md); without HARDWARE all devices share one fsdp axis.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

Choices = Mapping[str, Mapping[str, Any]]


def on_hardware(config: ConfigDict, hardware: str, choices: Choices) -> ConfigDict:
    """Sets what one choice says.

    Args:
      config: of a run; changed in place.
      hardware: a key of `choices`, or empty.
      choices: values by the config's dotted keys.

    Raises:
      ValueError: no such choice; names those that there are.
    """
    if not hardware:
        return config
    if hardware not in choices:
        raise ValueError(f"{hardware!r}: known are {', '.join(choices)}")
    config.update_from_flattened_dict(choices[hardware])
    return config
