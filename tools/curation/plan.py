"""What a run does."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rl.types import Problem
from tools.curation.sources import Source


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does; equal plans over equal files give equal bytes.

    Attributes:
      sources: where rows come from; earlier ones win among duplicates.
      evaluation: name -> problem of those that must not be trained on.
      screen: keyword arguments of `make_screen`.
      near: thresholds of near duplicates: `threshold`, `same_answer_threshold`,
        `conflict_threshold`, and `contamination_threshold` against evaluation.
      ngram: words in a run that contaminates.
      ngram_max_problems: a run found in more problems than this is boilerplate.
      conflicts: "majority" keeps the answer most copies give, "drop" drops them all.
      levels: the scale that levels are kept on; "auto" takes the most frequent,
        "none" keeps no level.
      unlevelled: "keep" or "drop" rows without a level on that scale.
      answer_timeout: seconds that one answer may take to verify.
      workers: processes.
    """

    sources: Sequence[Source]
    evaluation: Mapping[str, Problem]
    screen: Mapping[str, Any]
    near: Mapping[str, float]
    ngram: int
    ngram_max_problems: int
    conflicts: str
    levels: str
    unlevelled: str
    answer_timeout: float
    workers: int

    @property
    def evaluation_texts(self) -> dict[str, str]:
        """Name -> text."""
        return {name: problem.problem for name, problem in self.evaluation.items()}
