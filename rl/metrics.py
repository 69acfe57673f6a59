"""Where a run's figures go: metrics.jsonl, TensorBoard, samples.jsonl, one line."""

import json
import math
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl.board import Board
from rl.collect import Tally


class MetricsWriter:
    """Writes each step's figures; a resumed run continues as if never interrupted."""

    def __init__(self, workdir: pathlib.Path, *, keep: int):
        """
        Args:
          workdir: `metrics.jsonl`, `samples.jsonl` and `tensorboard/` live there.
          keep: the last step whose figures stay; later ones, of work that was lost,
            go. -1 begins afresh.
        """
        for name in ("metrics.jsonl", "samples.jsonl"):
            _keep_until(workdir / name, keep)
        self._metrics = (workdir / "metrics.jsonl").open("a", encoding="utf-8")
        self._samples = (workdir / "samples.jsonl").open("a", encoding="utf-8")
        self._board = Board(workdir / "tensorboard", keep=keep)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One row of metrics.jsonl and one point per name on TensorBoard."""
        row = {"step": step, **{k: _plain(v) for k, v in values.items()}}
        self._metrics.write(json.dumps(row) + "\n")
        self._metrics.flush()
        for name, value in values.items():
            if math.isfinite(value):
                self._board.scalar(name, value, step)
        self._board.flush()

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Completions as text: a line each, and a table on TensorBoard."""
        for row in rows:
            line = json.dumps({"step": step, **row}, ensure_ascii=False)
            self._samples.write(line + "\n")
        self._samples.flush()
        self._board.text("samples", _table(rows), step)

    def close(self) -> None:
        self._metrics.close()
        self._samples.close()
        self._board.close()


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
        "sampling/carried": tally.carried,
        "sampling/aged_out": tally.aged_out,
    }
    if not tally.sampled:
        return metrics
    correct = np.concatenate(tally.correct)
    rewards = np.concatenate(tally.rewards)
    lengths = np.concatenate(tally.lengths)
    truncated = np.concatenate(tally.truncated)
    metrics |= {
        "reward/mean": rewards.mean(),
        "reward/accuracy": correct.mean(),
        "sampling/solve_all": tally.solve_all / tally.sampled,
        "sampling/solve_none": tally.solve_none / tally.sampled,
        "sampling/truncated": truncated.mean(),
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


def update_metrics(stats: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """One step's updates: token means, maxima, and the first update by itself."""

    def total(key, some=stats):
        return float(sum(s["sum"][key] for s in some))

    def mean(key, per="tokens", some=stats):
        count = total(per, some)
        return total(key, some) / count if count else 0.0

    first, last = stats[:1], stats[-1]
    metrics = {
        "policy/loss": float(np.mean([s["loss"] for s in stats])),
        "policy/grad_norm": float(np.mean([s["grad_norm"] for s in stats])),
        "policy/entropy": mean("entropy"),
        "policy/clipped_low": mean("clipped_low"),
        "policy/clipped_high": mean("clipped_high"),
        "policy/ratio_mean": mean("ratio"),
        "policy/ratio_max": float(max(s["max"]["ratio"] for s in stats)),
        "policy/kl_old_policy": mean("kl_old_policy"),
        # Before any update of the step the policy is the one that was sampled.
        "policy/sampler_gap_mean": mean("sampler_gap", some=first),
        "policy/sampler_gap_max": float(first[0]["max"]["sampler_gap"]),
        "policy/old_gap_mean": mean("old_gap", some=first),
        "policy/old_gap_max": float(first[0]["max"]["old_gap"]),
        "policy/skipped_in_a_row": float(last["skipped"]),
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
    if "dual_clipped" in stats[0]["sum"]:
        metrics["policy/dual_clipped"] = mean("dual_clipped")
    return metrics


def verifier_metrics(
    before: Mapping[str, int], after: Mapping[str, int]
) -> dict[str, float]:
    """What the verifier counted in between: judged, unparsable, timeout ..."""
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


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _plain(value: float) -> float | int:
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    def cell(value):
        return str(value).replace("|", "\\|").replace("\n", "<br>")

    lines = ["| problem | completion | answer | reward |", "|---|---|---|---|"]
    for row in rows:
        cells = (row["problem"], row["completion"], row["gold"], row["reward"])
        lines.append("| " + " | ".join(map(cell, cells)) + " |")
    return "\n".join(lines)


def _keep_until(path: pathlib.Path, keep: int) -> None:
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= keep:
                kept.append(line + "\n")
        except (ValueError, KeyError):
            break  # a line that a kill cut short is the last
    temporary = path.with_suffix(".partial")
    temporary.write_text("".join(kept), encoding="utf-8")
    temporary.replace(path)
