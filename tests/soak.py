"""Kills or stops a small run at seeded random moments, and compares how it ends.

    python -m tests.soak kill --out DIR [--times 30] [--devices 8]
    python -m tests.soak stop --out DIR [--times 30] [--devices 8] [--within 2]

kill: a staged run that drops most of its groups is killed (`kill -9`) while it loads,
compiles, samples, verifies, refills a batch, updates, saves, publishes, evaluates,
exports, or starts a new pass over its data. After it was resumed to its end, its
metrics, completions and exported weights must equal those of an uninterrupted run, bit
for bit. stop: the same with SIGTERM, after which the run must end within two seconds
and with the exit status of a stop. Exit status 1: something differed; the last line
says what.
"""

import argparse
import ctypes
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import random
import runpy
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from configs.reading import user_path
from rl import files
from rl.processes.stopping import run, status_of
from tests.other_processes import dotted, environment, make_config, python

# What depends on the machine and the moment; saves run while steps do.
_TIMINGS = ("seconds/", "speed/", "timing/", "sampling/seconds", "checkpoint/")
_STAGES = (
    {"name": "easy", "levels": {"2": 0.3, "3": 0.7}, "steps": 4},
    {"name": "hard", "levels": {"3": 0.2, "4": 0.4, "5": 0.4}, "eps_high": 0.3},
)
# A pass over these sums ends every few steps; of four completions of one most are all
# right or all wrong.
_SETTINGS = {
    # Two kv heads, one for each shard of eight devices.
    "model.maker_args": dict(heads=4, held_out=40),
    "data": dict(train_args=dict(held_out=5000), eval_args=dict(held_out=40)),
    "rollout": dict(group_size=4, slots=64, max_response_tokens=40),
    "batch": dict(prompts_per_step=8, prompts_per_update=4),
    "dynamic_sampling.max_rounds": 40,
    "eval": dict(samples=2, every_steps=5),
    "checkpoint.every_steps": 2,
}
_SETTINGS = dotted(_SETTINGS)
_ROWS = dict(row_lengths="(32,)", micro_tokens=256)
# Of a long run: nothing is learned, and a step is little more than what it leaves.
SMALL = {
    "model.maker_args": dict(steps=1, layers=1, hidden_size=32),
    "rollout.max_response_tokens": 12,
    "batch": dict(prompts_per_step=4, prompts_per_update=2, **_ROWS),
    "data.eval_args.held_out": 8,
    "eval": dict(samples=1, greedy=False),
}
SMALL = dotted(SMALL)
_SIDES = {1: 1, 8: 2}  # of the mesh, by its devices
# Where a signal strikes: within a call of a function, perhaps under a condition; in
# which call at the latest, 1 where a start has no more; and after how many seconds of
# it at the latest, about the number that it takes.
_MOMENTS = {
    "plan": ("rl.run_spec:validate", 1, 0.5),
    "load": ("models.hf:load_params", 1, 0.1),
    "compile": ("rollout.jax_sampler:JaxSampler.warm_up", 1, 0.5),
    "restore": ("rl.checkpoint:Checkpoints.restore", 1, 0.01),
    "sample": ("rollout.jax_sampler:JaxSampler.sample", 3, 0.3),
    "verify": ("rl.verifier.pool:VerifierPool.judge", 3, 0.01),
    "refill": ("rl.groups.collect:Collector._round", 3, 0.01),
    "update": ("rl.engine:Engine.update", 3, 0.3),
    "save": ("rl.checkpoint:Checkpoints.save", 3, 0.01),
    "commit": ("rl.checksums:write_sums", 3, 0.05),
    "publish": ("rl.engine:Engine.publish", 3, 0.01),
    "evaluate": ("rl.run:evaluate_sets", 3, 0.5),
    "metrics": ("rl.metrics:MetricsWriter.scalars", 3, 0.01),
    "epoch": ("rl.groups.curriculum:Curriculum.draw", 3, 0.01),
    "export": ("rl.engine:Engine.export", 1, 0.05),
}
# How a run ends after a signal; of SIGTERM's the second while it still imports.
_ENDS = {
    signal.SIGKILL: (-signal.SIGKILL,),
    signal.SIGTERM: (status_of(signal.SIGTERM), -signal.SIGTERM),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Strike:
    """A signal: the `count`th time that a moment comes, after so long within it."""

    moment: str
    count: int
    seconds: float
    signal: int


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        result = _struck(args)
    except Different as difference:
        print(f"soak: {difference}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2))
    return 0


class Different(Exception):
    """A run is not what it should be; says what differs."""


# -- kills and stops -----------------------------------------------------------------


def _struck(args: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    whole = args.out / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    _run(args, whole)
    number = signal.SIGKILL if args.what == "kill" else signal.SIGTERM
    strikes = _strikes(args.seed, number)
    seconds: dict[str, list[float]] = {moment: [] for moment in _MOMENTS}
    struck = missed = runs = 0
    while struck < args.times:
        workdir = args.out / f"struck-{runs}"
        shutil.rmtree(workdir, ignore_errors=True)
        while strike := (next(strikes) if struck < args.times else None):
            took = _run(args, workdir, strike)
            if took is None:
                missed += 1
                break
            seconds[strike.moment].append(took)
            struck += 1
            text = f"soak: {args.what} in {strike.moment}: ended after {took:.2f} s"
            print(text, file=sys.stderr, flush=True)
        else:
            _run(args, workdir)
        _compare(whole, workdir)
        shutil.rmtree(workdir)
        runs += 1
    return {
        "signal": number.name,
        "devices": args.devices,
        "steps": args.steps,
        "struck": struck,
        "by_moment": {m: len(took) for m, took in seconds.items()},
        "longest_seconds": {
            m: round(max(took), 2) for m, took in seconds.items() if took
        },
        "ended_before_their_strike": missed,
        "runs": runs,
        "seconds": round(time.monotonic() - began, 1),
    }


def _strikes(seed: int, number: int) -> Iterator[Strike]:
    """Without end: every moment in turn, in an order that the seed gives."""
    rng = random.Random(seed)
    while True:
        for moment in rng.sample(sorted(_MOMENTS), len(_MOMENTS)):
            _, calls, seconds = _MOMENTS[moment]
            within = seconds * rng.random()
            yield Strike(moment, rng.randint(1, calls), within, number)


def _run(
    args: argparse.Namespace, workdir: pathlib.Path, strike: Strike | None = None
) -> float | None:
    """Starts a run, or resumes it.

    Returns:
      Seconds that it took to end after a signal; None where it came to its own end.

    Raises:
      Different: it ended otherwise, or late.
    """
    side = _SIDES[args.devices]
    settings = _SETTINGS | {
        "steps": args.steps,
        "mesh.cpu_devices": args.devices,
        **{f"mesh.{axis}": side for axis in ("data", "fsdp", "tensor")},
        **dict(args.set),
        "model.maker_args.cache": args.out / "bases",
        "compiled": args.out / "compiled",
    }
    stages, at = f"c.curriculum.stages = {_STAGES!r}", args.out / "struck_at"
    config = make_config(args.out / "soak_config.py", stages)
    at.unlink(missing_ok=True)
    order = {"strike": strike and dataclasses.asdict(strike), "at": str(at.absolute())}
    done = python(
        *("-m", "tests.soak", "child", json.dumps(order)),
        *(f"--config={config}", f"--workdir={workdir}"),
        *(f"--config.{key}={value}" for key, value in settings.items()),
        env=environment(),
        preexec_fn=_die_with_parent,
    )
    ended = time.time()
    if not done.returncode:
        return None
    if not (strike and at.exists() and done.returncode in _ENDS[strike.signal]):
        lines = (done.stdout + done.stderr).strip().splitlines()
        after = f" after {strike}" if strike else ""
        end = f"{done.returncode}{after}: {' | '.join(lines[-3:])}"
        raise Different(f"a run ended with {end}")
    took = ended - float(at.read_text())
    if strike.signal == signal.SIGTERM and took > args.within:
        raise Different(f"stopped in {strike.moment}, it took {took:.1f} s to end")
    return took


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _compare(whole: pathlib.Path, killed: pathlib.Path) -> None:
    """Raises Different where two runs are not the same to the last bit."""
    wanted, left = _left(whole), _left(killed)
    for name in wanted | left:
        if wanted.get(name) != left.get(name):
            raise Different(f"{killed}: {name} differs")


def _left(workdir: pathlib.Path) -> dict[str, Any]:
    """Return what must agree: rows of metrics and samples, and the exported weights."""
    left = {}
    for name in ("metrics.jsonl", "samples.jsonl"):
        for where, row in files.read_rows(workdir / name, appended=True):
            row = {k: v for k, v in row.items() if not k.startswith(_TIMINGS)}
            left[f"{name}:{where.rpartition(':')[2]}"] = row
    left["hf/model.safetensors"] = files.sha256(workdir / "hf" / "model.safetensors")
    return left


# -- the run itself ------------------------------------------------------------------


def _child(order: dict[str, Any], arguments: Sequence[str]) -> None:
    """Run `rl.train`, with a signal ordered if `order` has one."""
    if order.get("strike"):
        _order_strike(Strike(**order["strike"]), pathlib.Path(order["at"]))
    sys.argv[1:] = arguments
    runpy.run_module("rl.train", run_name="__main__", alter_sys=True)


def _wrap(where: str, around: Callable[..., Any]) -> None:
    """Replaces `module:qualified.name` by `around(original, *its arguments)`."""
    module, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapped)


def _order_strike(strike: Strike, at: pathlib.Path) -> None:
    left = strike.count
    rounds: dict[str, Any] = {}

    def send() -> None:
        at.write_text(str(time.time()))
        os.kill(os.getpid(), strike.signal)

    def come() -> None:
        nonlocal left
        left -= 1
        if not left:
            timer = threading.Timer(strike.seconds, send)
            timer.daemon = True
            timer.start()

    def around(original, *args, **kwargs):
        if strike.moment == "refill":
            # Only with groups left over from the step before, or from a round before.
            step = args[1]
            rounds[step] = rounds.get(step, 0) + 1
            if rounds[step] > 1 or args[0].state()["left"]:
                come()
        elif strike.moment == "epoch":
            before = _passes(args[0])
            drawn = original(*args, **kwargs)
            if _passes(args[0]) > before:
                come()
            return drawn
        else:
            come()
        return original(*args, **kwargs)

    where, _, _ = _MOMENTS[strike.moment]
    _wrap(where, around)


def _passes(curriculum: Any) -> float:
    metrics = curriculum.metrics()
    return sum(n for name, n in metrics.items() if "/passes" in name)


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE")
    return key, value


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("kill", "stop"))
    parser.add_argument("--out", type=user_path, required=True, help="for its runs")
    parser.add_argument("--times", type=int, default=30, help="kills, or stops")
    parser.add_argument(
        "--within", type=float, default=2, help="seconds until a stopped run has ended"
    )
    parser.add_argument("--devices", type=int, choices=_SIDES, default=1)
    parser.add_argument("--steps", type=int, default=12)
    text = "another setting of the run's config, such as model.maker_args.steps=100"
    how = dict(type=_setting, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--set", **how, help=text)
    parser.add_argument("--seed", type=int, default=0, help="of moments and texts")
    args = parser.parse_args(argv)
    args.out = args.out.absolute()
    return args


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        _child(json.loads(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(run("soak: stopped", lambda _: main()))
