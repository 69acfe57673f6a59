"""The project's commands by one name, from any folder.

compass NAME ...    is `python -m` with the module of that name, and
compass NAME --help  says what it takes
"""

import ast
import importlib.util
import os
import runpy
import sys

COMMANDS = {
    "train": "rl.train",
    "evaluate": "tools.evaluate",
    "perplexity": "tools.perplexity",
    "fetch": "tools.fetch",
    "grade": "tools.grade",
    "curate": "tools.curate",
    "verify": "tools.verify",
    "check_objective": "tools.check_objective",
    "ablate": "tools.ablate",
    "convert": "tools.convert",
    "checkpoint": "tools.checkpoint",
    "gpu_check": "tools.gpu_check",
    "plan": "tools.plan",
    "report": "tools.report",
    "bench": "tools.bench",
}


def summary(module: str) -> str:
    """The first line of a module's docstring; the module is not imported."""
    loader = importlib.util.find_spec(module).loader
    docstring = ast.get_docstring(ast.parse(loader.get_source(module)))
    return docstring.splitlines()[0]


def usage() -> str:
    """What `compass --help` prints."""
    names = "\n".join(
        f"  {name:<17}{summary(module)}" for name, module in COMMANDS.items()
    )
    return f"{__doc__.strip()}\n\n{names}"


def main() -> None:
    """Runs a command as `python -m` would, so that all of them have one entry."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(usage())
        return
    name = sys.argv.pop(1)
    if name not in COMMANDS:
        sys.exit(f"error: {name!r} is none of {', '.join(COMMANDS)}")
    sys.path[0] = os.getcwd()
    runpy.run_module(COMMANDS[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
