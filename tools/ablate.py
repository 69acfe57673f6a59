"""Trains each arm of an ablation with each seed, and compares the arms.

python -m tools.ablate --config=configs/ablations.py:NAME [--config.KEY=VALUE ...]

Saves each run in a folder of WORKDIR/runs (flag --workdir) whose name is a hash of the
run's config. Finished runs are reused, also by other ablations, and interrupted runs
resume. The report is WORKDIR/NAME.md and WORKDIR/NAME.json. --config=FILE.py:NAME@BASE
uses the config BASE in place of the ablation's base. --config.KEY=VALUE applies to
every arm.
"""

import functools
import sys
from collections.abc import Sequence

from absl import app, flags, logging
from ml_collections import config_flags

from configs.reading import (
    Parser,
    define_config,
    describe_keys,
    output_file,
    output_folder,
    parse_flags,
    user_path,
)
from rl import files
from rl.processes.stopping import StopSignals
from tools import command
from tools.ablation import execute
from tools.ablation.report import markdown, read_result
from tools.ablation.study import Run, make_study

_CONFIG = define_config("The ablation: FILE.py:NAME; see configs/ablations.py.")
_WORKDIR = flags.DEFINE(
    Parser(output_folder), "workdir", "runs/ablations", "Output folder."
)
_SEEDS = flags.DEFINE_multi_string(
    "seeds", [], "Seeds, such as 0,1,2, in place of those of the ablation."
)
_PROCESSES = flags.DEFINE_integer(
    "processes",
    1,
    "Number of concurrent runs; 0 starts none and reports on existing runs.",
    lower_bound=0,
)
_DEVICES = flags.DEFINE_string(
    "devices",
    "",
    "GPUs of each concurrent run, such as '0,1;2,3'; replaces --processes.",
)
_JOBS = flags.DEFINE_string(
    "jobs", None, "Write the commands of unfinished runs to this file and start none."
)
_JSON = flags.DEFINE(Parser(output_file), "json", None, "Also write the result.")


def main(argv: Sequence[str]) -> None:
    if _CONFIG.value is None:
        sys.exit("error: --config is missing; give --config=configs/ablations.py:NAME")
    logging.set_verbosity(logging.WARNING)
    message = "ablate: stopped; the same command resumes"
    sys.exit(command.run_stoppable(_ablate, None, failed=bool, message=message))


def _ablate(stop: StopSignals) -> list[Run]:
    """Executes the pending runs and writes the report; returns the runs that failed."""
    workdir = _WORKDIR.value
    study = make_study(
        config_flags.get_config_filename(flags.FLAGS["config"]),
        workdir=workdir,
        overrides=config_flags.get_override_values(flags.FLAGS["config"]),
        seeds=_seeds(),
    )
    gpus = filter(None, _DEVICES.value.split(";"))
    slots: list[dict[str, str]] = [{"CUDA_VISIBLE_DEVICES": some} for some in gpus]
    slots = slots or [{}] * _PROCESSES.value
    pending, failed = study.pending, []
    if pending and (slots or _JOBS.value):
        execute.check(pending)
    if _JOBS.value:
        jobs = user_path(_JOBS.value)
        files.replace(jobs, "".join(f"{job.command()}\n" for job in pending))
        print(f"{jobs}: commands: {len(pending)}; run each from the current folder")
        return []
    if pending and slots:

        def announce(line: str) -> None:
            print(f"{study.name}: {line}", file=sys.stderr, flush=True)

        failed = execute.train(pending, slots=slots, stop=stop, announce=announce)
    result = read_result(study)
    text = markdown(result)
    workdir.mkdir(parents=True, exist_ok=True)
    files.replace(workdir / f"{study.name}.md", text)
    for path in filter(None, (workdir / f"{study.name}.json", _JSON.value)):
        files.replace_json(path, result)
    print(text)
    return failed


def _seeds() -> list[int]:
    text = ",".join(_SEEDS.value)
    try:
        return [int(seed) for seed in filter(None, text.split(","))]
    except ValueError:
        raise ValueError(f"--seeds={text}: must be integers, such as 0,1,2") from None


if __name__ == "__main__":
    app.run(main, flags_parser=functools.partial(parse_flags, keys=describe_keys))
