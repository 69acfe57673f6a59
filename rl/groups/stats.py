"""Computes statistics of groups: signal, repetition and the counts of a step."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

from rl.groups.draws import SampledGroup
from rl.problems.curriculum import Counts, Stage
from rl.types import Group

FilterOn = Literal["correct", "reward"]
_WINDOW = 8  # tokens; prose and algebra rarely repeat an 8-gram
_TAIL = 512  # tokens; a looping completion rarely recovers
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def informative(group: Group, *, on: FilterOn = "correct") -> bool:
    """Returns whether the completions of a group differ in correctness or reward.

    Args:
      group: group with at least one completion.
      on: criterion. "correct" requires correct and wrong completions (DAPO, arXiv
        2503.14476, eq. 11). "reward" requires different rewards before shaping.
    """
    if on == "reward":
        return bool(np.ptp(group.raw) > 0)
    return bool(group.correct.any() and not group.correct.all())


def is_repetitive(token_ids: Int[np.ndarray, " n"]) -> bool:
    """Returns whether the end of a completion repeats itself.

    A completion of at least 15 tokens does if fewer than half of the 8-grams in its
    last 512 tokens are distinct. The function compares 64-bit hashes of the 8-grams.
    """
    token_ids = token_ids[-_TAIL:]
    count = len(token_ids) - _WINDOW + 1
    if count < _WINDOW:
        return False
    hashes = np.zeros(count, np.uint64)
    for i in range(_WINDOW):
        hashes = hashes * _FACTOR + token_ids[i : i + count].astype(np.uint64) + 1
    return len(np.unique(hashes)) < count / 2


def duplicated(texts: Sequence[Int[np.ndarray, " _"]]) -> Bool[np.ndarray, " G"]:
    """Returns a mask `[G]` of completions that equal another completion."""
    keys = [text.tobytes() for text in texts]
    return np.array([keys.count(key) > 1 for key in keys], bool)


@dataclasses.dataclass(slots=True)
class RolloutStats:
    """Holds statistics of all groups judged in one step, including those filtered out.

    Attributes:
      stage: curriculum stage of the step.
      filter_on: criterion of informative groups (see `informative`).
      curriculum: metrics of curriculum and draws, set when the step has been sampled.
      completions: number of sampled completions, with or without a verdict.
      aged_out: number of groups from earlier steps that were dropped. Groups without
        tokens do not count here, nor in `partial` and `unfinished`.
      carried: number of surplus groups from earlier steps that were retained.
      partial: number of partial groups from earlier steps that were retained.
      unfinished: number of unfinished completions left for the next step.
      of_offered: for each group, the number of offered problems that it represents
        (1 / probability of the draw), and the verdicts of its completions.
    """

    stage: Stage
    filter_on: FilterOn = "correct"
    curriculum: Mapping[str, float] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    rounds: int = 0
    sampled: int = 0
    completions: int = 0
    solve_all: int = 0
    solve_none: int = 0
    informative: int = 0
    aged_out: int = 0
    carried: int = 0
    partial: int = 0
    unfinished: int = 0
    unjudged: int = 0
    of_offered: list[tuple[float, np.ndarray]] = dataclasses.field(default_factory=list)
    correct: list[np.ndarray] = dataclasses.field(default_factory=list)
    rewards: list[np.ndarray] = dataclasses.field(default_factory=list)
    components: dict[str, list[np.ndarray]] = dataclasses.field(default_factory=dict)
    lengths: list[np.ndarray] = dataclasses.field(default_factory=list)
    truncated: list[np.ndarray] = dataclasses.field(default_factory=list)
    repeated: list[np.ndarray] = dataclasses.field(default_factory=list)
    duplicated: list[np.ndarray] = dataclasses.field(default_factory=list)
    examples: list[Group] = dataclasses.field(default_factory=list)

    def add(self, drawn: SampledGroup) -> None:
        group = drawn.group
        self.sampled += 1
        self.completions += drawn.sampled
        self.unjudged += drawn.sampled - len(group.completions)
        self.of_offered.append((1 / drawn.draw.chance, group.correct))
        if not len(group.correct):
            return
        self.solve_all += bool(group.correct.all())
        self.solve_none += not group.correct.any()
        self.informative += informative(group, on=self.filter_on)
        self.correct.append(group.correct)
        self.rewards.append(group.rewards)
        for name, part in group.components.items():
            self.components.setdefault(name, []).append(part)
        texts = [c.token_ids for c in group.completions]
        self.lengths.append(np.array([len(text) for text in texts]))
        self.repeated.append(np.array([is_repetitive(text) for text in texts]))
        self.duplicated.append(duplicated(texts))
        self.truncated.append(np.array([c.truncated for c in group.completions]))
        if len(self.examples) < 4:
            self.examples.append(group)

    @property
    def counts(self) -> Counts:
        """Returns (numerator, denominator) of each metric by which stages can advance.

        Groups are weighted so that they represent all offered problems, including the
        skipped ones.
        """
        judged = right = groups = solved = 0.0
        for count, correct in self.of_offered:
            judged += count * len(correct)
            right += count * int(correct.sum())
            groups += count
            solved += count * bool(len(correct) and correct.all())
        return {"accuracy": (right, judged), "solve_all": (solved, groups)}
