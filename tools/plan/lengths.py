"""How long completions are: by a named distribution, or as a run has measured them."""

import dataclasses
import math
import pathlib

import numpy as np

from rl.files import read_rows

_DRAWN = 4096
_Z95 = 1.645  # of the normal distribution's 95th percentile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths:
    """What a run's completions are like.

    Attributes:
      source: where this is from.
      completions: int `[n]`, tokens of completions drawn from the distribution.
      accepted: share of sampled groups that training takes.
      accepted_from: where that is from.
      rate: completion tokens per second that the sampler was seen to make; 0: unknown.
      prompt: tokens of a prompt, mean.
    """

    source: str
    completions: np.ndarray
    accepted: float
    accepted_from: str = "assumed"
    rate: float = 0.0
    prompt: float = 150.0

    @property
    def mean(self) -> float:
        return float(self.completions.mean())

    @property
    def sequence(self) -> float:
        """Mean tokens of a prompt with its completion."""
        return self.prompt + self.mean

    @property
    def context(self) -> float:
        """Mean positions that a token sees while it is drawn."""
        return self.prompt + self.mean / 2

    def squares(self) -> float:
        """Mean squared length of a prompt with its completion, as attention costs."""
        return float(np.mean((self.prompt + self.completions) ** 2.0))


# Median tokens, and the 95th percentile over it: of math problems by a 7B base.
PRESETS = {"short": (300, 3.0), "math": (700, 4.0), "long": (2000, 2.0)}


def read_lengths(name: str, *, longest: int) -> Lengths:
    """A preset by its name, or the means of a run's `metrics.jsonl`.

    Args:
      name: of `PRESETS`, or a file.
      longest: `rollout.max_response_tokens`; nothing is longer.

    Raises:
      ValueError: neither, or a file without steps; one line.
    """
    if name in PRESETS:
        median, spread = PRESETS[name]
        drawn = _lognormal(math.log(median), math.log(spread) / _Z95, longest)
        return Lengths(source=name, completions=drawn, accepted=0.5)
    path = pathlib.Path(name).expanduser()
    if not path.is_file():
        raise ValueError(
            f"--lengths={name}: neither a file nor one of {', '.join(PRESETS)}"
        )
    rows = [row for _, row in read_rows(path, appended=True)]
    seen = [row for row in rows if "length/all_mean" in row]
    if not seen:
        raise ValueError(f"--lengths={name}: no step with length/all_mean")
    mean = float(np.mean([row["length/all_mean"] for row in seen]))
    p95 = float(np.mean([row["length/all_p95"] for row in seen]))
    taken = [1 - row["sampling/solve_all"] - row["sampling/solve_none"] for row in seen]
    rates = [r["speed/sampling_tokens"] for r in seen if "speed/sampling_tokens" in r]
    center, width = _fitted(mean, p95)
    return Lengths(
        source=str(path),
        completions=_lognormal(center, width, longest),
        accepted=float(np.clip(np.mean(taken), 0.01, 1)),
        accepted_from="measured, mean of its steps",
        rate=float(np.median(rates)) if rates else 0.0,
    )


def _fitted(mean: float, p95: float) -> tuple[float, float]:
    """Of the lognormal with this mean and 95th percentile, where there is one."""
    ratio = math.log(max(p95 / mean, 1.0))
    # ln p95 - ln mean = z s - s^2 / 2; beyond s = z nothing is that spread.
    spread = _Z95 - math.sqrt(max(0.0, _Z95**2 - 2 * ratio))
    return math.log(mean) - spread**2 / 2, spread


def _lognormal(center: float, spread: float, longest: int) -> np.ndarray:
    normal = np.random.default_rng(0).normal(center, spread, _DRAWN)
    return np.clip(np.rint(np.exp(normal)), 1, longest).astype(int)
