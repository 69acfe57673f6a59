"""Where a run's figures go: metrics.jsonl, TensorBoard, samples.jsonl, one line."""

import math
import pathlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from configs.schema import Range
from rl.batches.collect import Tally
from rl.files import Rows, markdown_table, named, read_rows, replace_rows
from rl.progress import duration
from rl.types import Group
from rl.update.objective import MEASURED

EVALUATED = "eval/"  # begins the names of an evaluation's figures


class MetricsWriter:
    """Writes each step's figures; a resumed run continues as if never interrupted."""

    def __init__(self, workdir: pathlib.Path, *, keep: int, evaluated: int):
        """
        Args:
          workdir: `metrics.jsonl`, `samples.jsonl` and `tensorboard/` live there.
          keep: the last step whose figures stay; later ones, of work that was lost,
            go. -1 begins afresh.
          evaluated: the same of evaluations, for that of a step may be lost alone.
        """
        self._workdir = workdir
        self._open(keep, evaluated)

    def _open(self, keep: int, evaluated: int) -> None:
        for name in ("metrics.jsonl", "samples.jsonl"):
            _keep_until(self._workdir / name, keep, evaluated)
        self._metrics = Rows(self._workdir / "metrics.jsonl")
        self._samples = Rows(self._workdir / "samples.jsonl")
        self._board = Board(self._workdir / "tensorboard", keep=keep)

    def rewind(self, keep: int) -> None:
        """Drops the figures of later steps than `keep`."""
        self.close()
        self._open(keep, keep)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One row of metrics.jsonl and one point per name on TensorBoard."""
        plain = {name: _plain(value) for name, value in values.items()}
        self._metrics.write({"step": step, **plain})
        for name, value in values.items():
            if math.isfinite(value):
                self._board.scalar(name, value, step)
        self._board.flush()

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Completions as text: a line each, and a table on TensorBoard."""
        self._samples.write(*({"step": step, **row} for row in rows))
        self._board.text("samples", _table(rows), step)

    def close(self) -> None:
        self._metrics.close()
        self._samples.close()
        self._board.close()


class Board:
    """TensorBoard's event files, record by record: no TensorFlow, no torch, no thread.

    Its own writer tells of a full disk by the traceback of a thread.
    """

    def __init__(self, folder: pathlib.Path, *, keep: int):
        """
        Args:
          folder: of the event files.
          keep: the last step whose points stay; TensorBoard drops later ones that an
            earlier start of the run left behind.
        """
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self._path = folder / name
        self._file = self._path.open("xb")
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._add(keep + 1, session_log=SessionLog(status=SessionLog.START))

    def scalar(self, name: str, value: float, step: int) -> None:
        self._add(
            step, summary=Summary(value=[Summary.Value(tag=name, simple_value=value)])
        )

    def text(self, name: str, markdown: str, step: int) -> None:
        metadata = SummaryMetadata(
            plugin_data=SummaryMetadata.PluginData(plugin_name="text")
        )
        tensor = TensorProto(
            dtype=DT_STRING,
            string_val=[markdown.encode()],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )
        value = Summary.Value(tag=name, metadata=metadata, tensor=tensor)
        self._add(step, summary=Summary(value=[value]))

    def _add(self, step: int, **content) -> None:
        self._write(Event(wall_time=time.time(), step=step, **content))

    def _write(self, event: Event) -> None:
        with named(self._path):
            self._records.write(event.SerializeToString())

    def flush(self) -> None:
        with named(self._path):
            self._file.flush()

    def close(self) -> None:
        with named(self._path), self._file:
            self._file.flush()


class Stopwatch:
    """Seconds by phase of one step."""

    def __init__(self):
        self._began = self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """Books the time since the last lap on `phase`."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    @property
    def total(self) -> float:
        return time.perf_counter() - self._began


def sampling_metrics(tally: Tally) -> dict[str, float]:
    """What the rounds of a step say of the policy."""
    metrics: dict[str, float] = {
        "sampling/seconds": tally.seconds,
        "sampling/rounds": tally.rounds,
        "sampling/groups": tally.sampled,
        "sampling/completions": tally.asked,
        "sampling/carried": tally.carried,
        "sampling/aged_out": tally.aged_out,
    }
    if tally.completions:
        # Of this step's own: under other schedules the verifier is ahead of it.
        metrics["sampling/unjudged"] = tally.unjudged / tally.completions
    if not tally.correct:
        return metrics
    correct = np.concatenate(tally.correct)
    rewards = np.concatenate(tally.rewards)
    lengths = np.concatenate(tally.lengths)
    truncated = np.concatenate(tally.truncated)
    metrics |= {
        "reward/mean": rewards.mean(),
        "reward/accuracy": correct.mean(),
        **{
            f"component/{name}": np.nanmean(np.concatenate(parts))
            for name, parts in tally.components.items()
            if not np.isnan(np.concatenate(parts)).all()
        },
        "sampling/solve_all": tally.solve_all / tally.sampled,
        "sampling/solve_none": tally.solve_none / tally.sampled,
        "sampling/informative": 1
        - (tally.solve_all + tally.solve_none) / tally.sampled,
        "sampling/truncated": truncated.mean(),
        "sampling/repeated": np.concatenate(tally.repeated).mean(),
        "sampling/duplicated": np.concatenate(tally.duplicated).mean(),
        "sampling/tokens": lengths.sum(),
    }
    for name, part in (
        ("all", lengths),
        ("right", lengths[correct]),
        ("wrong", lengths[~correct]),
    ):
        if len(part):
            metrics[f"length/{name}_mean"] = part.mean()
            metrics[f"length/{name}_p95"] = np.quantile(part, 0.95)
            metrics[f"length/{name}_max"] = part.max()
    return {name: float(value) for name, value in metrics.items()}


def example_rows(
    tally: Tally,
    decode: Callable[[Sequence[int]], str],
    *,
    samples: Annotated[int, Range(0, 4)],
) -> list[dict[str, Any]]:
    """The first completion of some groups, for samples.jsonl."""
    return [
        {
            "id": group.problem.id,
            "problem": group.problem.problem,
            "completion": decode(group.completions[0].token_ids.tolist()),
            "gold": group.problem.answers[0],
            "correct": bool(group.correct[0]),
            "reward": float(group.rewards[0]),
            **_components(group),
            "finish_reason": group.completions[0].finish_reason,
        }
        for group in tally.examples[:samples]
    ]


def _components(group: Group) -> dict[str, Any]:
    found = {k: float(v[0]) for k, v in group.components.items() if not np.isnan(v[0])}
    return {"components": found} if found else {}


def update_metrics(stats: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """One step's updates: token means, maxima, and the first update by itself."""

    def total(key, some=stats):
        return float(sum(s["sum"][key] for s in some))

    def mean(key, per="tokens", some=stats):
        count = total(per, some)
        return total(key, some) / count if count else 0.0

    first = stats[:1]
    metrics = {
        "policy/loss": float(np.mean([s["loss"] for s in stats])),
        "policy/grad_norm": float(np.mean([s["grad_norm"] for s in stats])),
        "policy/entropy": mean("entropy"),
        "policy/kl_old_policy": mean("kl_old_policy"),
        # Before any update of the step the policy is the one that was sampled.
        "policy/sampler_gap_mean": mean("sampler_gap", some=first),
        "policy/sampler_gap_max": float(first[0]["max"]["sampler_gap"]),
        "policy/old_gap_mean": mean("old_gap", some=first),
        "policy/old_gap_max": float(first[0]["max"]["old_gap"]),
        "policy/skipped": float(sum(s["skipped"] for s in stats)),
        "policy/skipped_in_a_row": float(max(s["skipped_in_a_row"] for s in stats)),
        "off_policy/tokens": mean("off_policy"),
    }
    if total("off_policy"):
        count, weights = total("off_policy"), total("correction")
        metrics |= {
            "off_policy/weight_mean": weights / count,
            "off_policy/weight_max": float(max(s["max"]["correction"] for s in stats)),
            "off_policy/effective_sample_size": weights**2
            / max(count * total("correction_squared"), 1e-30),
        }
    for name in stats[0]["sum"].keys() - MEASURED:  # this objective's own
        if name in stats[0]["max"]:
            metrics[f"policy/{name}_mean"] = mean(name)
            metrics[f"policy/{name}_max"] = float(max(s["max"][name] for s in stats))
        else:
            metrics[f"policy/{name}"] = mean(name)
    return metrics


def speed_metrics(metrics: Mapping[str, float], clock: Stopwatch) -> dict[str, float]:
    """Seconds of each phase of a step, and tokens per second."""
    speeds = {f"seconds/{phase}": s for phase, s in clock.seconds.items()}
    speeds["seconds/step"] = clock.total
    if metrics.get("sampling/seconds"):
        rate = metrics.get("sampling/tokens", 0.0) / metrics["sampling/seconds"]
        speeds["speed/sampling_tokens"] = rate
    if "packing/tokens" in metrics:
        rate = metrics["packing/tokens"] / clock.seconds["update"]
        speeds["speed/update_tokens"] = rate
    return speeds


def verifier_metrics(
    before: Mapping[str, int], after: Mapping[str, int]
) -> dict[str, float]:
    """What the verifier counted in between: judged, and by the rule that decided."""
    return {f"verifier/{k}": float(n - before.get(k, 0)) for k, n in after.items()}


def console_line(step: int, steps: int, m: Mapping[str, float], left: float) -> str:
    """What a person watching wants: where we are, how it goes, how long still."""
    parts = [f"step {step}/{steps}"]
    for label, key, form in (
        ("accuracy", "reward/accuracy", ".3f"),
        ("all/none", None, ""),
        ("entropy", "policy/entropy", ".3f"),
        ("length", "length/all_mean", ".0f"),
        ("grad", "policy/grad_norm", ".2f"),
        ("lr", "schedule/learning_rate", ".1e"),
        ("sample tok/s", "speed/sampling_tokens", ",.0f"),
        ("update tok/s", "speed/update_tokens", ",.0f"),
    ):
        if key is None and "sampling/solve_all" in m:
            both = m["sampling/solve_all"], m["sampling/solve_none"]
            parts.append(f"{label} {both[0]:.2f}/{both[1]:.2f}")
        elif key in m:
            parts.append(f"{label} {m[key]:{form}}")
    parts.append(f"{m['seconds/step']:.1f} s/step, {duration(left)} left")
    return " | ".join(parts)


def _plain(value: float) -> float | int:
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = ("problem", "completion", "gold", "reward")
    cells = [[str(row[column]) for column in columns] for row in rows]
    return "\n".join(markdown_table(columns, cells))


def _keep_until(path: pathlib.Path, keep: int, evaluated: int) -> None:
    def last(row: Mapping[str, Any]) -> int:
        return evaluated if any(name.startswith(EVALUATED) for name in row) else keep

    if path.exists():
        rows = read_rows(path, appended=True)
        replace_rows(path, (row for _, row in rows if row["step"] <= last(row)))
