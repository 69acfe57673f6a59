"""Commands that end at once: each a process of its own, imports made once for all."""

import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

# Imports are made once, here, and forked for each command.
_STARTS = """
import importlib, json, os, pathlib, runpy, sys
folder = pathlib.Path(sys.argv[1])
module, needs, commands = json.loads((folder / "starts.json").read_text())
for name in needs:
    importlib.import_module(name)
for i, arguments in enumerate(commands):
    child = os.fork()
    if not child:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / f"{i}.{name}", os.O_WRONLY | os.O_CREAT), number)
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (folder / f"{i}.code").write_text(str(status))
"""


def starts(
    folder: pathlib.Path,
    module: str,
    commands: Sequence[Sequence[str]],
    *,
    needs: Sequence[str],
    **popen,
) -> list[subprocess.CompletedProcess]:
    """Runs `python -m MODULE ARGUMENTS`, one after the other.

    Args:
      folder: for what they print.
      module: that is run.
      commands: the arguments of each.
      needs: what `module` imports, but for itself.
      popen: see `subprocess.run`.
    """
    (folder / "starts.json").write_text(json.dumps([module, needs, commands]))
    command = [sys.executable, "-c", _STARTS, str(folder)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, **popen)
    ended = []
    for i, arguments in enumerate(commands):
        names = ("code", "stdout", "stderr")
        code, *texts = ((folder / f"{i}.{name}").read_text() for name in names)
        ended.append(subprocess.CompletedProcess(arguments, int(code), *texts))
    return ended
