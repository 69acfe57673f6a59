"""python -m tools.bench NAME [--json OUT] ...: runs one measurement."""

import argparse
import importlib
import json
import sys

from configs.reading import user_path
from rl.files import replace_json

BENCHES = {
    "pack": "padding and time of packing at the size of a 7B step",
    "served": "vLLM's servers: a publish beside a copy, the client beside vLLM alone",
    "sampler": "the embedded sampler beside Tunix, transformers and vLLM",
    "update": "the update beside Tunix and TRL: tokens per second, share of peak",
    "verifier": "the verifier beside Math-Verify: accuracy, speed, the pool",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench")
    commands = parser.add_subparsers(dest="name", required=True)
    modules = {}
    for name, summary in BENCHES.items():
        modules[name] = importlib.import_module(f"tools.bench.{name}")
        command = commands.add_parser(
            name, help=summary, description=modules[name].__doc__
        )
        command.add_argument("--json", type=user_path, metavar="OUT")
        modules[name].add_arguments(command)
    arguments = parser.parse_args(argv)
    try:
        result = modules[arguments.name].run(arguments)
    except (OSError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, indent=1))
    if arguments.json:
        replace_json(arguments.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
