"""The compilers' own environments, and a process in them for each request.

Their plugins would change which devices a trainer takes by itself, so that they stand
apart from it: `make plan` builds .venv-plan-tpu and .venv-plan-cuda.
"""

import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Sequence

from ml_collections import ConfigDict

from configs.schema import config_json
from tools.plan.compiling import Compiled
from tools.plan.programs import Resident
from tools.plan.targets import Target

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path("~/.cache/compass/plan").expanduser()


def interpreter(target: Target) -> pathlib.Path:
    """The Python that has the target's compiler.

    Raises:
      ValueError: `make plan` was not run here.
    """
    platform = target.chip.platform
    # Several can stand side by side, such as one for each version of Python.
    prefix = os.environ.get("COMPASS_PLAN", str(ROOT / ".venv-plan"))
    python = pathlib.Path(f"{prefix}-{platform}/bin/python").absolute()
    if not (python.parent.parent / ".done").exists():
        raise ValueError(
            f"--target={target}: {python.parents[1].name} is not there, which has its"
            " compiler; `make plan` makes it"
        )
    return python


def compile_programs(
    config: ConfigDict,
    target: Target,
    *,
    programs: Sequence[str],
    cache: pathlib.Path,
    on_compiled: Callable[[], None] = lambda: None,
) -> tuple[Resident, list[Compiled]]:
    """Compiles a run's programs for a target, or finds them in the cache.

    Args:
      config: of the run.
      target: of the whole run.
      programs: names of `tools.plan.programs.PARTS`.
      cache: a folder that keeps what was compiled.
      on_compiled: is told of each program.

    Raises:
      ValueError: no compiler, or one that refuses; one line.
    """
    request = {
        "config": json.loads(config_json(config)),
        "target": str(target),
        "programs": list(programs),
        "cache": str(cache),
    }
    log = cache / f"{target.chip.platform}.log"
    cache.mkdir(parents=True, exist_ok=True)
    compiled: list[Compiled] = []
    # The compiler needs no device; a TPU's library would ask Google's cloud which.
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "TPU_SKIP_MDS_QUERY": "1",
    }
    with (
        log.open("w") as said,
        subprocess.Popen(
            [interpreter(target), "-m", "tools.plan.compiling"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        try:
            process.stdin.write(json.dumps(request))
            process.stdin.close()
            answers = map(_answer, process.stdout)
            first = next(answers, None)
            for answer in answers:
                compiled.append(Compiled(**answer))
                on_compiled()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise ValueError(
            f"--target={target}: its compiler ended with status {process.returncode};"
            f" {log} has what it said"
        )
    return Resident(**first), compiled


def _answer(line: str) -> dict:
    answer = json.loads(line)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer
