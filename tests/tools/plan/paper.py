"""The paper's run, to plan."""

from configs import compass_thinker_7b
from configs.base import RunConfig, from_config


def paper_config(hardware: str = "", **values) -> RunConfig:
    """Returns the config with other values, such as `mesh__fsdp=8`."""
    config = compass_thinker_7b.get_config(hardware)
    changed = {name.replace("__", "."): value for name, value in values.items()}
    config.update_from_flattened_dict(changed)
    return from_config(config)
