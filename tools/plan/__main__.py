"""Checks whether a run fits on accelerators that this machine does not have.

python -m tools.plan --config=configs/NAME.py --target=v5e:4x4 [--config.KEY=VALUE ...]

Compiles the main programs of the run on this CPU with the target's compiler. Prints
the memory, FLOPs, memory traffic and link traffic of each program, and a lower bound of
the program's run time. `make plan` installs the compilers.
"""

import functools
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags, logging

from configs.base import from_config
from configs.reading import (
    Parser,
    define_config,
    describe_keys,
    output_file,
    parse_flags,
)
from rl.processes.stopping import StopSignals
from tools import command
from tools.plan import search
from tools.plan.compiling import compile_programs, use_compiler
from tools.plan.report import describe, make_report
from tools.plan.targets import CHIPS, parse_target
from tools.plan.workload import make_workload

_CONFIG = define_config("Run configuration.")
_TARGET = flags.DEFINE_string(
    "target",
    None,
    "Devices of the trainer, CHIP:SHAPE, such as v5e:4x4, v5p:2x2x2, h100:8 or h200:2x8"
    f" (nodes x GPUs); chips: {', '.join(CHIPS)}.",
)
_SEARCH = flags.DEFINE_bool(
    "search",
    False,
    "Search for the fastest mesh, micro-batch, remat and offloading that fit.",
)
_CONTEXT = flags.DEFINE_integer(
    "context",
    0,
    "Cached positions that each decoded token attends to (0: half of the longest prompt"
    " and completion).",
    lower_bound=0,
)
_JSON = flags.DEFINE(Parser(output_file), "json", None, "Also write the plan.")


def main(argv: Sequence[str]) -> None:
    if _CONFIG.value is None or not _TARGET.value:
        sys.exit("error: give --config=configs/NAME.py and --target=CHIP:SHAPE")
    logging.set_verbosity(logging.WARNING)
    message = "plan: stopped; compiled programs are cached"
    sys.exit(command.run_stoppable(_plan, _JSON.value, message=message))


def _plan(stop: StopSignals) -> dict[str, Any]:
    config = from_config(_CONFIG.value)
    target = parse_target(_TARGET.value or "")
    if _SEARCH.value:
        work = search.best(config, target)
    else:
        work = make_workload(config, target)
        use_compiler(target)
    plan = make_report(work, *compile_programs(work), context=_CONTEXT.value)
    print(describe(plan))
    return plan


if __name__ == "__main__":
    app.run(main, flags_parser=functools.partial(parse_flags, keys=describe_keys))
