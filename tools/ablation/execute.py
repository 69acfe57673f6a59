"""Executes the runs of an ablation."""

import collections
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from configs.base import from_config
from configs.checks import check_config
from rl.processes.stopping import StopSignals
from rollout.vllm import supervisor
from tools.ablation.study import Run


def check(runs: Sequence[Run]) -> None:
    """Raises ValueError if the config of an arm is not valid; the message names it."""
    for arm, config in {run.arm: run.config for run in runs}.items():
        try:
            check_config(from_config(config))
        except ValueError as error:
            raise ValueError(f"arm {arm!r}: {error}") from None


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
