"""Writes the metrics of a step, with examples of completions.

Metrics are written to metrics.jsonl, examples to samples.jsonl, and both to the metric
loggers: TensorBoard and those of `log.sinks`. Errors of a logger do not end the run.
"""

import contextlib
import functools
import math
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from rl.errors import one_line
from rl.files import Rows
from rl.metric_loggers import Board, Maker, Sink
from rl.progress import duration, watch

CLIPPED = ("policy/clipped_high", "policy/clipped_low")
HEADLINE = {
    "accuracy": ("reward/accuracy", "eval/accuracy", "eval/greedy_accuracy"),
    "reward": ("reward/mean",),
    "length, tokens": ("length/all_mean", "length/all_p95"),
    "entropy, nats": ("policy/entropy",),
    "clip fractions": CLIPPED,
    "speed, tokens per second": ("speed/sampling_tokens", "speed/update_tokens"),
}
"""Maps chart titles of the report to metrics, which TensorBoard shows first."""

EVALUATED = "eval/"  # prefix of the metrics of an evaluation


class MetricsWriter:
    """Writes the metrics and examples of each step; a resumed run appends to them.

    When opened, removes rows of steps after `keep` (-1 for a new run), and rows of
    evaluations after step `evaluated`. `config` has hyperparameters by dotted key.
    """

    def __init__(
        self,
        workdir: pathlib.Path,
        *,
        keep: int,
        evaluated: int,
        config: Mapping[str, Any] | None = None,
        sinks: Mapping[str, Maker] | None = None,
    ):

        def kept(row: Mapping[str, Any]) -> bool:
            of_evaluation = any(name.startswith(EVALUATED) for name in row)
            return row["step"] <= (evaluated if of_evaluation else keep)

        step = {"step": int}
        self._metrics = Rows(workdir / "metrics.jsonl", kept, fields=step)
        self._samples = Rows(workdir / "samples.jsonl", kept, fields=step)
        front = {tag for tags in HEADLINE.values() for tag in tags}
        makers = dict[str, Maker](sinks or {})
        makers["tensorboard"] = functools.partial(Board, front=front)
        self._sinks: dict[str, Sink] = {}
        for name, maker in makers.items():
            with self._guarded(name):
                self._sinks[name] = maker(workdir, config=dict(config or {}), keep=keep)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Writes finite scalars by name; metrics.jsonl has null for other scalars."""
        plain = {name: _plain(value) for name, value in values.items()}
        finite = {k: v for k, v in plain.items() if math.isfinite(v)}
        self._metrics.write({"step": step, **plain})
        self._log("scalars", step, finite)

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes completions to samples.jsonl and to the loggers."""
        self._samples.write(*({"step": step, **row} for row in rows))
        self._log("samples", step, rows)

    def close(self) -> None:
        # The files first: a logger may wait for a service when a stop leaves no time.
        try:
            with contextlib.closing(self._metrics):
                self._samples.close()
        finally:
            self._log("close")

    def _log(self, method: str, *arguments: Any) -> None:
        for name, sink in list(self._sinks.items()):
            with self._guarded(name):
                getattr(sink, method)(*arguments)

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._sinks.pop(name, None)
            print(
                f"WARNING: metric logger {name!r} failed and is not called again:"
                f" {one_line(error)}",
            )


class Compiles:
    """Counts the programs that JAX compiles or reads from its compilation cache."""

    def __init__(self):
        self.programs = 0  # since the creation of this object
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self.programs += 1


class Stopwatch:
    """Measures and shows the seconds of each phase of a step; names it in traces."""

    def __init__(self):
        self._began = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the duration of the `with` block to `seconds[name]`."""
        began = time.perf_counter()
        with jax.profiler.TraceAnnotation(name), watch(name):
            yield
        spent = time.perf_counter() - began
        self.seconds[name] = self.seconds.get(name, 0.0) + spent

    @property
    def total(self) -> float:
        return time.perf_counter() - self._began


def speed_metrics(metrics: Mapping[str, float], clock: Stopwatch) -> dict[str, float]:
    """Returns the seconds of a step and its phases, and sampled tokens per second."""
    speeds = {f"seconds/{phase}": s for phase, s in clock.seconds.items()}
    speeds["seconds/step"] = clock.total
    if metrics.get("sampling/seconds"):
        rate = metrics.get("sampling/tokens", 0.0) / metrics["sampling/seconds"]
        speeds["speed/sampling_tokens"] = rate
    return speeds


LEGEND = (
    "columns: reward (mean), acc (share of correct completions), clip (share of clipped"
    " tokens), KL (nats/token from the step's initial policy), len (mean tokens)"
)
# Name, metrics (their sum is shown) and format of each column.
_COLUMNS = (
    ("reward", ("reward/mean",), "+.2f"),
    ("acc", ("reward/accuracy",), ".1%"),
    ("clip", CLIPPED, ".1%"),
    ("KL", ("policy/kl_old_policy",), "z.4f"),
    ("len", ("length/all_mean",), ".0f"),
)


def console_line(
    step: int, steps: int, m: Mapping[str, float], left: float | None
) -> str:
    """Formats the line of a step; `left` is the run's remaining seconds, if known."""
    parts = [f"step {step}/{steps}"]
    for name, keys, form in _COLUMNS:
        if values := [m[key] for key in keys if key in m]:
            parts.append(f"{name} {sum(values):{form}}")
    seconds = m["seconds/step"]
    parts.append(f"{seconds:.{1 if seconds < 99.95 else 0}f} s/step")
    parts.append("compiled" if left is None else f"{duration(left)} left")
    line = "  ".join(parts)
    return line if len(line) <= 100 else " ".join(parts)


def _plain(value: float) -> float | int:
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
