"""The main job: `python -m rl.train --config=configs/NAME.py --workdir=DIR`.

The command around the loop (`rl.loop`): flags, devices, processes, the workdir, one
line for an error, and the result.
"""

import contextlib
import fcntl
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from rl import build, multihost, peers
from rl.alarms import Alarm
from rl.engine import Engine
from rl.evaluate import headline
from rl.loop import train
from rl.metrics import duration
from rl.plan import check_same, config_json, make_plan, start_devices
from rl.stopping import Stopped, StopSignals
from rollout.types import SamplerError

_CONFIG = config_flags.DEFINE_config_file("config", None, "Run configuration.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Say what would be done, and stop.")
# Only where the environment does not say it; see docs/several_hosts.md.
_COORDINATOR = flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0.")
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Processes of the run.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Number of this process.")

# What these say in a line is all that a user needs.
_TOLD = (ValueError, OSError, Alarm, SamplerError)


@contextlib.contextmanager
def _locked(workdir: pathlib.Path) -> Iterator[None]:
    """One run at a time in a workdir."""
    workdir.mkdir(parents=True, exist_ok=True)
    with (workdir / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{workdir}: another run is writing there") from None
        yield


def _finished(workdir: pathlib.Path, steps: int) -> dict[str, Any] | None:
    path = workdir / "summary.json"
    if not path.is_file():
        return None
    summary = json.loads(path.read_text(encoding="utf-8"))
    return summary if summary["steps"] >= steps else None


def _report(summary: dict[str, Any], workdir: pathlib.Path) -> None:
    for name in ("base", "final"):
        if summary[name]:
            print(f"{name:>5}: {headline(summary[name])}")
    print(
        f"{summary['steps']} steps, {summary['updates']} updates,"
        f" {duration(summary['wall_seconds'])}; the model is in {workdir / 'hf'}"
    )


def _parse_flags(argv: Sequence[str]) -> Sequence[str]:
    """ml_collections answers a misspelt or mistyped key with a traceback."""
    try:
        return flags.FLAGS(argv)
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        sys.exit(f"error: config: {' '.join(str(error).split())}")


def main(argv: Sequence[str]) -> None:
    logging.set_verbosity(logging.WARNING)  # Orbax tells its life story at INFO
    if len(argv) > 1:
        sys.exit(f"error: unexpected argument {argv[1]!r}")
    if _CONFIG.value is None or not _WORKDIR.value:
        sys.exit("error: give --config=configs/NAME.py and --workdir=DIR")
    config, workdir = _CONFIG.value, pathlib.Path(_WORKDIR.value)
    try:
        start_devices(config)
        with peers.start(
            _COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value, told=_TOLD
        ) as processes:
            if processes.leads:
                status = _lead(config, workdir, processes)
            else:
                status = _follow(config, workdir, processes)
            processes.end(status)
    except _TOLD as error:
        sys.exit(f"error: {error}")
    sys.exit(status)


def _lead(config: ConfigDict, workdir: pathlib.Path, processes: peers.Peers) -> int:
    """The run, by the leader or the only process there is; the exit status."""
    plan = make_plan(config)
    if _DRY_RUN.value:
        print(plan.describe(workdir))
        return 0
    with _locked(workdir):
        if summary := _finished(workdir, config.steps):
            print(f"{workdir}: finished already")
            _report(summary, workdir)
            return 0
        (workdir / "config.json").write_text(config_json(config) + "\n")
        try:
            summary = train(plan, workdir, processes)
        except Stopped as stopped:
            print(f"{stopped}: saved; the same command resumes", flush=True)
            return 128 + stopped.signal
        partial = workdir / ".summary.partial"
        partial.write_text(json.dumps(summary, indent=2) + "\n")
        partial.replace(workdir / "summary.json")
        _report(summary, workdir)
    return 0


def _follow(config: ConfigDict, workdir: pathlib.Path, leader: peers.Follower) -> int:
    """The run, by any other process; the exit status."""
    StopSignals(leader)

    def make_engine(of_leader: str) -> Engine:
        check_same(config, of_leader)
        return build.make_engine(make_plan(config), workdir)

    return multihost.follow(leader, make_engine)


if __name__ == "__main__":
    app.run(main, flags_parser=_parse_flags)
