"""Runs one measurement: python -m tools.bench NAME [--json OUT] ..."""

import argparse
import contextlib
import importlib
import json
import subprocess
import sys

from configs.reading import output_file
from rl.files import replace_json

BENCHES = ("learning", "sampler", "update", "verifier")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench")
    commands = parser.add_subparsers(dest="name", required=True)
    # If torch is imported later, transformers cannot use it; see
    # rl/problems/tokenizer.py.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")
    for name in BENCHES:
        module = importlib.import_module(f"tools.bench.{name}")
        text = module.__doc__ or ""
        command = commands.add_parser(
            name, help=text.partition("\n")[0], description=text
        )
        command.add_argument(
            "--json", type=output_file, metavar="OUT", help="also write the result here"
        )
        command.set_defaults(run=module.run)
        module.add_arguments(command)
    arguments = parser.parse_args(argv)
    try:
        result = arguments.run(arguments)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, indent=1))
    if arguments.json:
        replace_json(arguments.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
