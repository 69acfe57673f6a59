"""What a run needs of accelerators that need not be here, by their own compilers.

python -m tools.plan --config=configs/NAME.py --target=v5e:4x4 [--config.KEY=VALUE ...]

Every program of the run is compiled as configured for the target, on this CPU: memory
phase by phase against what there is, collectives, how long a step takes at best, what
it costs. `make plan` makes the compilers' environments.
"""

import itertools
import pathlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags, logging
from ml_collections import ConfigDict

from configs.reading import (
    define_config,
    describe_keys,
    expand_home,
    parse_flags,
    user_path,
)
from rl.files import replace, replace_json
from rl.processes.stopping import status_of
from rl.progress import watch
from tools.page import document, parts
from tools.plan import search
from tools.plan.compiling import Compiled
from tools.plan.environments import CACHE, compile_programs
from tools.plan.lengths import PRESETS, Lengths, read_lengths
from tools.plan.pace import parse_given
from tools.plan.programs import PARTS
from tools.plan.report import describe, make_report
from tools.plan.targets import CHIPS, Target, parse_target
from tools.plan.workload import make_workload

_CONFIG = define_config("Run configuration.")
_TARGET = flags.DEFINE_string(
    "target",
    None,
    "CHIP:SHAPE, such as v5e:4x4, v5p:2x2x2, h100:8 or h200:2x8 (nodes x GPUs); chips"
    f" are {', '.join(CHIPS)}.",
)
_SEARCH = flags.DEFINE_bool(
    "search", False, "Look for the fastest mesh, micro-batch and remat that fit."
)
_JSON = flags.DEFINE_string("json", None, "Write the plan to this file.")
_HTML = flags.DEFINE_string("html", None, "Write it as a page to this file.")
_DUMP = flags.DEFINE_string("dump_text", None, "Put the compiled texts there.")
_LENGTHS = flags.DEFINE_string(
    "lengths", "math", f"Of completions: {', '.join(PRESETS)}, or a metrics.jsonl."
)
_RATE = flags.DEFINE_float(
    "sampling_rate",
    0.0,
    "Completion tokens per second that all vLLM servers were seen to make together.",
    lower_bound=0,
)
_GIVEN = flags.DEFINE_list(
    "given", [], "NAME=VALUE, ...: figures of the timeline, by the names it prints."
)
_VARIANTS = flags.DEFINE_bool(
    "variants",
    False,
    "Also simulate each schedule with other publishes, batches and draws.",
)
_PRICE = flags.DEFINE_float("price", 0.0, "Of one device for an hour.", lower_bound=0)
_CACHE = flags.DEFINE_string("cache", str(CACHE), "Keeps what was compiled.")

_PAGE = pathlib.Path(__file__).with_name("page.html")


def make_plan(
    config: ConfigDict, target: Target, lengths: Lengths, given: Mapping[str, float]
) -> dict[str, Any]:
    """Compiles a run's programs and puts together what they say."""
    work = make_workload(config, target)
    # Six are of the embedded sampler, one of them for what is begun.
    missing = (not config.dynamic_sampling.carry) if work.embedded else 6
    total = len(PARTS) - missing
    with watch("compile", total=total, unit="programs") as count:
        resident, compiled = compile_programs(
            config,
            target,
            programs=list(PARTS),
            cache=user_path(_CACHE.value),
            on_compiled=count.update,
        )
    if _DUMP.value:
        _dump(user_path(_DUMP.value), compiled)
    return make_report(
        work,
        resident,
        compiled,
        lengths=lengths,
        rate=_RATE.value or lengths.rate,
        price=_PRICE.value,
        given=given,
        variants=_VARIANTS.value,
    )


def _dump(folder: pathlib.Path, compiled: Sequence[Compiled]) -> None:
    """NAME.txt for each program; one of several parts has them one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, programs in itertools.groupby(compiled, lambda p: PARTS[p.name]):
        replace(folder / f"{name}.txt", "".join(p.text + "\n" for p in programs))


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        sys.exit(f"error: unexpected argument {argv[1]!r}")
    if _CONFIG.value is None or not _TARGET.value:
        sys.exit("error: give --config=configs/NAME.py and --target=CHIP:SHAPE")
    config = _CONFIG.value
    expand_home(config)
    logging.set_verbosity(logging.WARNING)
    try:
        target, given = parse_target(_TARGET.value), parse_given(_GIVEN.value)
        lengths = read_lengths(
            _LENGTHS.value, longest=config.rollout.max_response_tokens
        )
        if _SEARCH.value:
            config = search.best(config, target, cache=user_path(_CACHE.value))
        plan = make_plan(config, target, lengths, given)
        if _JSON.value:
            replace_json(user_path(_JSON.value), plan)
        if _HTML.value:
            page = document("Plan", data=plan, **parts(_PAGE))
            replace(user_path(_HTML.value), page)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("error: interrupted; what was compiled is kept", file=sys.stderr)
        sys.exit(status_of(signal.SIGINT))
    print(describe(plan))


if __name__ == "__main__":
    app.run(main, flags_parser=lambda argv: parse_flags(argv, keys=describe_keys))
