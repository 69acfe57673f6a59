"""Executes the runs of an ablation: `check`, then `make_bases`, then `train`."""

import collections
import multiprocessing
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection

from ml_collections import ConfigDict

from configs.base import RunConfig, from_config
from configs.reading import expand_home
from configs.schema import config_json
from rl.base_model import base_folder
from rl.processes.devices import keep_programs, start_devices
from rl.processes.stopping import StopSignals, blocked
from rl.run_spec import validate
from rollout.vllm import supervisor
from tools.ablation.study import Run


def check(runs: Sequence[Run]) -> None:
    """Checks the first run of each arm, as `rl.train` does before training.

    Raises:
      ValueError: a check failed; the message names the arm.
    """
    for arm, config in {run.arm: run.config for run in reversed(runs)}.items():
        if wrong := _outcome(validate, config):
            raise ValueError(f"arm {arm!r}: {wrong}")


def make_bases(runs: Sequence[Run]) -> None:
    """Makes or downloads each base model once, so that concurrent runs find it.

    Raises:
      ValueError: a base model cannot be made or downloaded.
    """
    for config in {config_json(r.config.model): r.config for r in runs}.values():
        if wrong := _outcome(_base, config):
            raise ValueError(wrong)


def train(
    runs: Sequence[Run],
    *,
    slots: Sequence[Mapping[str, str]],
    stop: StopSignals,
    announce: Callable[[str], None],
) -> list[Run]:
    """Trains or resumes runs in parallel; returns those that failed.

    Each run is a process of `rl.train` that stops if this process ends or is killed.
    `slots` has one entry per concurrent run: the environment variables to add.
    """
    waiting, free = collections.deque(runs), collections.deque(slots)
    going: dict[int, tuple[Run, Mapping[str, str], subprocess.Popen, int]] = {}
    failed: list[Run] = []
    try:
        while waiting or going:
            while waiting and free:
                run, slot = waiting.popleft(), free.popleft()
                process, lifeline = _start(run, slot)
                going[os.pidfd_open(process.pid)] = (run, slot, process, lifeline)
                announce(f"{run}: started, {len(waiting)} waiting; log: {run.log}")
            for ended in select.select(list(going), [], [])[0]:
                run, slot, process, lifeline = going.pop(ended)
                status = process.wait()
                os.close(ended)
                os.close(lifeline)
                free.append(slot)
                failed += [run] if status else []
                announce(f"{run}: {f'failed: {run.last_line}' if status else 'done'}")
    finally:
        with stop.saving():  # a run cannot resume while its old process has the lock
            for *_, lifeline in going.values():
                os.close(lifeline)
            for _, _, process, _ in going.values():
                process.wait()
    return failed


def _start(run: Run, slot: Mapping[str, str]) -> tuple[subprocess.Popen, int]:
    run.workdir.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **slot, "PYTHONUNBUFFERED": "1"}
    with run.log.open("ab") as log:
        command = [sys.executable, "-m", *run.arguments]
        return supervisor.start(command, stdout=log, stderr=log, env=environment)


def _outcome(work: Callable[[RunConfig], object], config: ConfigDict) -> str:
    """Runs `work(config)` in a new process; returns its error's message, or "".

    A new process is necessary because JAX holds devices until its process ends.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_tried, args=(work, config, sending))
    with blocked():
        process.start()
    sending.close()
    try:
        return receiving.recv()
    except EOFError:
        process.join()
        return (
            f"the process that prepares the run ended with status {process.exitcode};"
            " see its output above"
        )
    finally:
        process.kill()
        process.join()


def _tried(
    work: Callable[[RunConfig], object], config: ConfigDict, sending: Connection
) -> None:
    try:
        expand_home(config)
        checked = from_config(config)
        start_devices(checked)
        work(checked)
    except (ValueError, OSError) as error:
        sending.send(str(error))
    else:
        sending.send("")


def _base(config: RunConfig) -> None:
    keep_programs(config.compiled)
    base_folder(config)
