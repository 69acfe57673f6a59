"""Trains a policy by reinforcement learning.

    python -m rl.train --config=configs/NAME.py --workdir=DIR [--config.KEY=VALUE ...]

The same command resumes an interrupted run. With --dry_run it only shows what it would
do. The training loop is in rl/loop.py.
"""

# ruff: noqa: E402

import signal

if __name__ == "__main__":
    # End the process without a traceback on Ctrl-C during the imports, which take
    # seconds.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from rl import packages

packages.check()

import contextlib
import functools
import json
import logging as standard_logging
import os
import pathlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import jax
from absl import app, flags, logging

from configs import reading
from configs.base import RunConfig, from_config
from configs.schema import check_same
from rl import files
from rl.alarms import Alarm
from rl.checkpoint import check_path
from rl.checksums import steps_in
from rl.engine import Engine
from rl.errors import one_line
from rl.evaluate import headline
from rl.loop import train
from rl.processes import group, joint, stopping
from rl.processes.devices import is_out_of_memory, keep_programs, start_devices
from rl.processes.start import start
from rl.processes.streams import outlast_output
from rl.progress import duration, phase
from rl.run_spec import validate
from rl.setup import make_engine
from rl.start_page import dry_run, next_commands
from rl.workdir import manifest
from rollout.types import SamplerError

_CONFIG = reading.define_config("Config file of the run; see configs/.")
_WORKDIR = flags.DEFINE(
    reading.Parser(reading.output_folder), "workdir", None, "Folder of the run."
)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "Print what the run would do; write nothing."
)
_ACCEPT_CHANGES = flags.DEFINE_bool(
    "accept_changes", False, "Resume although the config or the data have changed."
)
# These three are needed only if the environment has no such settings; see
# docs/launch.md.
_COORDINATOR = flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0.")
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Number of processes.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Index of this process, from 0.")

_RESUMES = "stopped: the same command continues; --dry_run shows after which step"
# Errors that are printed as one line, without a traceback.
_EXPECTED_ERRORS = (ValueError, OSError, SamplerError)

_OUT_OF_MEMORY = (
    "a device is out of memory; lower config.batch.micro_tokens,"
    " config.model.head_chunk or config.rollout.slots, or set"
    " config.model.remat='full', then resume the run"
)


def _report_finished(workdir: pathlib.Path, c: RunConfig) -> int | None:
    """Reports a run that has done its steps; returns its status, otherwise None."""
    path = workdir / "summary.json"
    if not path.is_file():
        return None
    advice = "delete it, then run the same command, which writes it again"
    with files.damaged(path, advice):
        summary = json.loads(path.read_text(encoding="utf-8"))
        if summary["steps"] < c.steps:
            return None
        print(f"{workdir}: finished already; raise config.steps to continue")
        return _report(summary, workdir, c)


def _report(summary: dict[str, Any], workdir: pathlib.Path, c: RunConfig) -> int:
    for name in ("base", "final"):
        if summary[name]:
            print(f"{name:>5}: {headline(summary[name])}")
    folder = workdir / "hf"
    if summary["exported"]:
        model = f"the model is in {folder}"
    elif folder.is_dir():
        model = f"no model was exported; {folder} has an earlier one"
    else:
        model = "no model was exported"
    print(
        f"{summary['steps']} steps, {summary['updates']} updates,"
        f" {duration(summary['wall_seconds'])}; {model}"
    )
    print(next_commands(workdir, c))
    if not summary["unhealthy"]:
        return stopping.DONE
    print(
        f"error: the run ended unhealthy: {summary['unhealthy']}; see {workdir}/dumps",
        file=sys.stderr,
    )
    return stopping.UNHEALTHY


def _parse_flags(argv: Sequence[str]) -> Sequence[str]:
    # With --dry_run, importing the user's reward must not write .pyc files.
    sys.dont_write_bytecode |= "--dry_run" in argv
    return reading.parse_flags(argv, keys=reading.describe_keys)


def main(argv: Sequence[str]) -> None:
    logging.set_verbosity(logging.WARNING)  # Orbax logs a lot at INFO
    # A failed save raises an error; asyncio and Orbax (absl) would also log it.
    for name in ("asyncio", "absl"):
        standard_logging.getLogger(name).setLevel(standard_logging.CRITICAL)
    warnings.filterwarnings("ignore", r"coroutine .* was never awaited", RuntimeWarning)
    if _CONFIG.value is None or _WORKDIR.value is None:
        sys.exit("error: give --config=configs/NAME.py and --workdir=DIR")
    outlast_output()
    status = stopping.run(_RESUMES, functools.partial(_command, _WORKDIR.value))
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of Orbax and XLA may crash the interpreter while it shuts down, which
    # would change the exit status. Everything is closed by now.
    os._exit(status)


def _command(workdir: pathlib.Path, stop: stopping.StopSignals) -> int:
    try:
        config = from_config(_CONFIG.value)
        start_devices(config, workdir)
        if not _DRY_RUN.value:
            keep_programs(config.compiled)
        with start(
            _COORDINATOR.value,
            _NUM_PROCESSES.value,
            _PROCESS_ID.value,
            expected_errors=_EXPECTED_ERRORS,
        ) as processes:
            stop.join(processes)
            try:
                if isinstance(processes, group.Follower):
                    status = _follow(config, workdir, processes)
                else:
                    status = _lead(config, workdir, processes, stop)
                processes.end(status)
            except jax.errors.JaxRuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                raise ValueError(f"{_OUT_OF_MEMORY}: {one_line(error)}") from None
        return status
    except _EXPECTED_ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return stopping.ERROR


def _lead(
    config: RunConfig,
    workdir: pathlib.Path,
    processes: group.Processes,
    stop: stopping.StopSignals,
) -> int:
    accept, dry = _ACCEPT_CHANGES.value, _DRY_RUN.value
    with phase("plan", "checks the config, the model and the data"):
        check_path("--workdir", workdir)
        if not accept:
            manifest.check_folder(workdir)
        spec = validate(config)
    with contextlib.nullcontext() if dry else files.locked(workdir):
        if not accept:
            manifest.check_config(workdir, spec)
        if dry:
            print(dry_run(spec, workdir))
        if (status := _report_finished(workdir, config)) is not None:
            return status
        if not accept:
            manifest.check_checkpoints(workdir)
        if dry:
            step = max(steps_in(workdir / "checkpoints"), default=0)
            print(f"begins after step {step}" if step else "begins a new run")
            return stopping.DONE
        try:
            summary = train(spec, workdir, processes, stop, accept_changes=accept)
        except stopping.Stopped as stopped:
            if processes.alone:
                raise
            # `Leader.end` announces this status to the other processes.
            return stopping.status_of(stopped.signal)
        except Alarm as alarm:
            print(f"error: {alarm}", file=sys.stderr)
            return stopping.UNHEALTHY
        files.replace_json(workdir / "summary.json", summary)
        return _report(summary, workdir, config)


def _follow(config: RunConfig, workdir: pathlib.Path, leader: group.Follower) -> int:
    def make_own(of_leader: str) -> Engine:
        check_same(config, of_leader)
        written = workdir / "config.json"
        if not written.is_file() or written.read_text("utf-8") != of_leader + "\n":
            raise ValueError(
                f"--workdir={workdir}: process 0 has another workdir; give all"
                " processes the same one, on a file system that they share"
            )
        return make_engine(validate(config), workdir)

    return joint.follow(leader, make_own)


if __name__ == "__main__":
    app.run(main, flags_parser=_parse_flags)
