"""Runs any of the project's commands, from any folder.

compass NAME ...     runs the command NAME, as `python -m MODULE ...` does
compass NAME --help  lists the flags of the command
"""

import ast
import os
import pathlib
import runpy
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

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
    """Returns the first line of a module's docstring without importing the module."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


def usage() -> str:
    names = "\n".join(
        f"  {name:<17}{summary(module)}" for name, module in COMMANDS.items()
    )
    return f"{(__doc__ or '').strip()}\n\n{names}"


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(usage())
        return
    name = sys.argv.pop(1)
    if name not in COMMANDS:
        sys.exit(f"error: command {name!r}: must be one of {', '.join(COMMANDS)}")
    sys.path[0] = os.getcwd()
    runpy.run_module(COMMANDS[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
