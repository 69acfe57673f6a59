"""Runs a command: its signals, its errors in one line, and its result as JSON."""

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from configs.reading import UnreadableConfig, output_file
from rl.files import replace_json
from rl.processes import stopping
from rl.processes.stopping import DONE, ERROR, REFUSED
from rollout.types import SamplerError

_FAILED = SamplerError, UnreadableConfig, subprocess.SubprocessError


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the flag `--json`, which every command has."""
    module = sys.modules["__main__"].__spec__  # None for a file without `-m`
    parser = argparse.ArgumentParser(
        prog=f"python -m {module.name.removesuffix('.__main__')}" if module else None,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = "also write the result here"
    parser.add_argument("--json", type=output_file, metavar="OUT", help=text)
    return parser


def run(
    work: Callable[[argparse.Namespace], Any],
    arguments: argparse.Namespace,
    *,
    failed: Callable[[Any], bool] = lambda result: False,
) -> int:
    """Calls `work` as `run_stoppable` does; the arguments have the flag `--json`."""
    return run_stoppable(lambda stop: work(arguments), arguments.json, failed=failed)


def run_stoppable(
    work: Callable[[stopping.StopSignals], Any],
    json: pathlib.Path | None,
    *,
    failed: Callable[[Any], bool] = lambda result: False,
    message: str = "stopped; the same command resumes or starts again",
) -> int:
    """Calls `work` and writes its result to the file `json`, if given.

    Returns the exit status of the command: 0, 1 if the result has `failed`, or 2 after
    an error, which is printed in one line. A signal or Ctrl-C ends the process, by
    default with `message`; see `stopping` for what `work` can do about it.
    """

    def command(stop: stopping.StopSignals) -> int:
        try:
            result = work(stop)
            if json:
                replace_json(json, result)
        except (OSError, ValueError, *_FAILED) as error:
            print(f"error: {error}", file=sys.stderr)
            return REFUSED
        return ERROR if failed(result) else DONE

    return stopping.run(message, command)
