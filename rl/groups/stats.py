"""Collects the statistics of a step, such as the share of repetitive completions."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from configs.base import RunConfig
from rl.groups.curriculum import Counts, Draw
from rl.types import FilterOn, Group

_WINDOW = 8  # tokens; prose and algebra rarely repeat an 8-gram
_TAIL = 512  # tokens; a looping completion rarely recovers
_COUNTS = (
    "seconds rounds groups completions carried aged_out partial unfinished".split()
)


def is_repetitive(token_ids: Int[np.ndarray, " n"]) -> bool:
    """Returns whether under half of the 8-grams in the last 512 tokens are distinct.

    For fewer than 15 tokens, returns False.
    """
    token_ids = token_ids[-_TAIL:]
    starts = range(len(token_ids) - _WINDOW + 1)
    distinct = {token_ids[i : i + _WINDOW].tobytes() for i in starts}
    return len(starts) >= _WINDOW and len(distinct) < len(starts) / 2


def duplicated(texts: Sequence[Int[np.ndarray, " _"]]) -> Bool[np.ndarray, " G"]:
    """Returns a mask `[G]`: whether each of G token sequences equals another one."""
    keys = [text.tobytes() for text in texts]
    return np.array([keys.count(key) > 1 for key in keys], bool)


@dataclasses.dataclass(slots=True)
class RolloutStats:
    """Holds statistics of all groups judged in one step, including those filtered out.

    Groups without tokens do not count in `aged_out`, `partial` and `unfinished`.
    """

    config: RunConfig  # of the step's stage; see `configs.base.in_stage`
    filter_on: FilterOn = "correct"
    # Metrics of curriculum and draws, set when sampling of the step ends.
    curriculum: Mapping[str, float] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    rounds: int = 0
    groups: int = 0  # sampled in this step
    completions: int = 0  # with or without a verdict
    solve_all: int = 0
    solve_none: int = 0
    informative: int = 0
    aged_out: int = 0  # groups from earlier steps that were dropped
    carried: int = 0  # surplus groups from earlier steps that were retained
    partial: int = 0  # partial groups from earlier steps that were retained
    unfinished: int = 0  # unfinished completions left for the next step
    unjudged: int = 0  # completions
    # For metrics, an array per group with an entry per completion that has a verdict.
    columns: dict[str, list[np.ndarray]] = dataclasses.field(default_factory=dict)
    # Correct completions, all, solved groups, all; for `counts`.
    weighted: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(4))
    examples: list[Group] = dataclasses.field(default_factory=list)

    def add(self, draw: Draw, group: Group, *, size: int) -> None:
        """Adds a judged group of `size` completions, with or without a verdict."""
        self.groups += 1
        self.completions += size
        self.unjudged += size - len(group.completions)
        judged, right = len(group.correct), int(group.correct.sum())
        solved = 0 < right == judged
        self.weighted += 1 / draw.chance * np.array([right, judged, solved, 1])
        if not judged:
            return
        self.solve_all += solved
        self.solve_none += not right
        self.informative += group.informative(self.filter_on)
        texts = [c.token_ids for c in group.completions]
        columns = {
            "reward/mean": group.rewards,
            "reward/accuracy": group.correct,
            "sampling/tokens": np.array([len(text) for text in texts]),
            "sampling/truncated": np.array([c.truncated for c in group.completions]),
            "sampling/repeated": np.array([is_repetitive(text) for text in texts]),
            "sampling/duplicated": duplicated(texts),
        }
        columns |= {f"component/{name}": x for name, x in group.components.items()}
        for name, column in columns.items():
            self.columns.setdefault(name, []).append(column)
        if len(self.examples) < 4:
            self.examples.append(group)

    @property
    def counts(self) -> Counts:
        """Returns (numerator, denominator) of each metric by which stages can advance.

        A group has the weight 1 / (probability of its draw), and so also represents
        offered problems that were skipped.
        """
        right, judged, solved, groups = self.weighted.tolist()
        return {"accuracy": (right, judged), "solve_all": (solved, groups)}

    def metrics(self) -> dict[str, float]:
        """Returns metrics of the step; most are absent if nothing was judged."""
        metrics: dict[str, float] = {f"sampling/{k}": getattr(self, k) for k in _COUNTS}
        metrics |= self.curriculum
        if self.completions:
            # Not from the verifier's counters, which may include later steps.
            metrics["sampling/unjudged"] = self.unjudged / self.completions
        if not self.columns:
            return metrics
        columns = {name: np.concatenate(parts) for name, parts in self.columns.items()}
        correct, lengths = columns["reward/accuracy"], columns["sampling/tokens"]
        # A component of the reward may be NaN for some completions.
        for name, column in columns.items():
            if not np.isnan(column).all():
                metrics[name] = np.nanmean(column)
        for name in ("solve_all", "solve_none", "informative"):
            metrics[f"sampling/{name}"] = getattr(self, name) / self.groups
        metrics["sampling/tokens"] = lengths.sum()
        kinds = {"all": lengths, "right": lengths[correct], "wrong": lengths[~correct]}
        for kind, part in kinds.items():
            if len(part):
                metrics[f"length/{kind}_mean"] = part.mean()
                metrics[f"length/{kind}_p95"] = np.quantile(part, 0.95)
                metrics[f"length/{kind}_max"] = part.max()
        return {name: float(value) for name, value in metrics.items()}


def staleness_metrics(groups: Sequence[Group], step: int) -> dict[str, float]:
    """Returns the mean and maximum age of tokens, and the number of tokens by age.

    The age of a token is `step` minus the policy version that sampled it.
    """
    versions = [c.versions for group in groups for c in group.completions]
    staleness = step - np.concatenate(versions)
    metrics = {
        "off_policy/staleness_mean": float(staleness.mean()),
        "off_policy/staleness_max": float(staleness.max()),
    }
    for behind, count in zip(*np.unique(staleness, return_counts=True), strict=True):
        metrics[f"off_policy/tokens_stale_{behind}"] = float(count)
    return metrics
