"""Runs one measurement: python -m tools.bench NAME [--json OUT] ..."""

import argparse
import contextlib
import importlib
import json
import sys
from typing import Any

from tools import command

BENCHES = ("learning", "sampler", "update", "verifier")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench")
    benches = parser.add_subparsers(dest="name", required=True)
    # If torch is imported later, transformers cannot use it; see
    # rl/problems/tokenizer.py.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")
    for name in BENCHES:
        module = importlib.import_module(f"tools.bench.{name}")
        text = module.__doc__ or ""
        bench = benches.add_parser(
            name,
            help=text.partition("\n")[0],
            description=text,
            parents=[command.make_parser(None)],
            add_help=False,
        )
        bench.set_defaults(run=module.run)
        module.add_arguments(bench)
    return command.run(_measure, parser.parse_args(argv))


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    result = arguments.run(arguments)
    print(json.dumps(result, indent=1))
    return result


if __name__ == "__main__":
    sys.exit(main())
