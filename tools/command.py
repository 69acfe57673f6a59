"""Runs a command: reports an error in one line, and writes its result as JSON."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from configs.reading import output_file
from rl.files import replace_json
from rl.processes.stopping import DONE, ERROR, REFUSED


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the flag `--json`, which every command has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
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
    """Calls `work` and writes its result to the file of `--json`.

    Returns the exit status of the command: 0, 1 if the result has `failed`, or 2 after
    an error.
    """
    try:
        result = work(arguments)
        if arguments.json:
            replace_json(arguments.json, result)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    return ERROR if failed(result) else DONE
