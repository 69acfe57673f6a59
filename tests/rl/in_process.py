"""Whole runs in this process."""

from configs.base import from_config
from rl.loop import train
from rl.processes.group import SingleProcess
from rl.processes.stopping import StopSignals
from rl.run_spec import validate


def run_here(config, workdir):
    """Trains as a config says; returns the run's summary."""
    spec = validate(from_config(config))
    workdir.mkdir(exist_ok=True)
    with StopSignals("") as stop:
        return train(spec, workdir, SingleProcess(), stop)
