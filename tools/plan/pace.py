"""The figures that a timeline runs by, each with where it is from.

Any of them can be given instead: `--given=update=90,load=5`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tools.plan.lengths import Lengths
from tools.plan.programs import Resident
from tools.plan.servers import Sampling
from tools.plan.speed import Roofline, Training, weight_bytes
from tools.plan.workload import Workload

# Seconds of a publish of 194 MB on CPUs (docs/benchmarks.md): the tensors and their
# delta written; that delta applied and checked, and all tensors laid out by vLLM's own
# loaders, while the server serves.
_STAGED_WRITE, _STAGED_LOAD = 0.16 / 194e6, 0.27 / 194e6
# Whole files, loaded while the server stands still: writing, and in all a fixed part
# and one by bytes.
_WHOLE_WRITE, _WHOLE_FIXED, _WHOLE = 0.06 / 194e6, 0.11, 1.3e-9
_PAUSE = 0.02  # that vLLM's /pause sleeps
_HOST_LINK = 64e9  # bytes per second from a host's memory to its GPU, PCIe 5 x 16
_VERDICT = 0.20 / 2048  # by two workers (docs/verifier.md)
_PROBLEMS = 30_000
_LIMITS = {
    "slots": (1, math.inf),
    "samplers": (1, math.inf),
    "problems": (1, math.inf),
    "steps": (4, math.inf),
    "accepted": (0, 1),
}
STEPS = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds of what is beside decoding, and what is simulated.

    Attributes:
      score, update: of a step.
      write, load, switch: of a publish: until the trainer has written the version, the
        servers have it ready, and they serve it.
      stands: 1 where servers draw nothing while they load, as while they switch.
      verdict: of a completion.
      accepted: share of groups that teach, where problems are drawn alike.
      problems: that there are.
      steps: that are simulated; the first half warms up.
    """

    score: float
    update: float
    write: float
    load: float
    switch: float
    stands: float = 0
    verdict: float
    accepted: float
    problems: float
    steps: float

    @property
    def train(self) -> float:
        return self.score + self.update

    @property
    def publish(self) -> float:
        return self.write + self.load + self.switch

    @property
    def pause(self) -> float:
        """Of the servers, which ends with the publish."""
        return self.switch + (self.load if self.stands else 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """All that a timeline runs by.

    Attributes:
      lengths: of completions.
      sampling: how fast servers are.
      pace: of all else.
      sources: where each figure of the two is from, by its name.
    """

    lengths: Lengths
    sampling: Sampling
    pace: Pace
    sources: Mapping[str, str]

    def rows(self) -> dict[str, dict[str, float | str]]:
        """Each figure by name, its value and its source."""
        values = dataclasses.asdict(self.sampling) | dataclasses.asdict(self.pace)
        return {
            name: {"value": values[name], "source": source}
            for name, source in self.sources.items()
        }

    def given(self, values: Mapping[str, float]) -> "Figures":
        """With some of them given.

        Raises:
          ValueError: no such figure, or one that it cannot be.
        """
        own = dataclasses.asdict(self.sampling), dataclasses.asdict(self.pace)
        for name, value in values.items():
            if name not in self.sources:
                raise ValueError(
                    f"--given={name}={value:g}: no such figure; there are"
                    f" {', '.join(self.sources)}"
                )
            least, most = _LIMITS.get(name, (0, math.inf))
            if not (math.isfinite(value) and least <= value <= most):
                raise ValueError(f"--given={name}={value:g}: from {least} to {most}")
        sampling, pace = (
            {name: type(old[name])(values[name]) for name in old if name in values}
            for old in own
        )
        return Figures(
            lengths=self.lengths,
            sampling=dataclasses.replace(self.sampling, **sampling),
            pace=dataclasses.replace(self.pace, **pace),
            sources=self.sources | dict.fromkeys(values, "given"),
        )


def make_figures(
    work: Workload,
    lengths: Lengths,
    sampling: Sampling,
    training: Training,
    rooflines: Mapping[str, Roofline],
    resident: Resident,
) -> Figures:
    """What is known of a run on its target."""
    speed = f"{sampling.how}: bytes of weights and cache over the memory's rate"
    if sampling.how != "computed":
        speed = f"{sampling.how}: all servers' tokens per second"
    compiled = "computed from compiled programs, not measured"
    measured = "measured with 97M parameters, by bytes"
    if work.embedded:
        tables = 1 if work.model.tie_word_embeddings else 2
        seconds = (
            tables * rooflines["publish_table"].bound
            + resident.arrays * rooflines["publish_layers"].bound
        )
        publish = {"write": seconds, "load": 0.0, "switch": 0.0}
        published = dict.fromkeys(publish, compiled)
    else:
        size = weight_bytes(work)
        link = size / _server_devices(work, sampling) / _HOST_LINK
        publish = {
            "write": size * _STAGED_WRITE,
            "load": size * _STAGED_LOAD,
            "switch": _PAUSE + link,
        }
        published = {
            "write": measured,
            "load": measured,
            "switch": "computed: 0.02 s and the weights over PCIe 5 (nominal)",
        }
    return Figures(
        lengths=lengths,
        sampling=sampling,
        pace=Pace(
            score=training.score,
            update=training.update,
            **publish,
            verdict=_VERDICT,
            accepted=lengths.accepted,
            problems=_PROBLEMS,
            steps=STEPS,
        ),
        sources={
            "fixed": speed,
            "position": speed,
            "prefill": "computed: operations at the peak",
            "slots": "config, and what the cache holds",
            "samplers": "config",
            "score": compiled,
            "update": compiled,
            **published,
            "stands": "staged: servers serve while they load",
            "verdict": "measured: 2,048 in 0.20 s",
            "accepted": lengths.accepted_from,
            "problems": "assumed",
            "steps": "simulated",
        },
    )


def _server_devices(work: Workload, sampling: Sampling) -> int:
    """Of each server."""
    return max(1, work.servers // sampling.samplers)


def loads_in_the_pause(figures: Figures, work: Workload) -> Figures:
    """As before publishes were staged: whole files, loaded by servers that stand."""
    size = weight_bytes(work)
    write = size * _WHOLE_WRITE
    changed = {
        "write": write,
        "load": _WHOLE_FIXED + size * _WHOLE - write,
        "switch": 0.0,
        "stands": 1,
    }
    changed = {k: v for k, v in changed.items() if figures.sources[k] != "given"}
    said = "measured up to 97M parameters, by bytes; whole files, loaded in the pause"
    return dataclasses.replace(
        figures,
        pace=dataclasses.replace(figures.pace, **changed),
        sources=figures.sources | dict.fromkeys(changed, said),
    )


def parse_given(texts: Sequence[str]) -> dict[str, float]:
    """`NAME=VALUE` each.

    Raises:
      ValueError: one that is not.
    """
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise ValueError(f"--given={text}: give NAME=NUMBER") from None
    return found
