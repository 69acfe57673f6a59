"""Dynamic sampling: rounds of completions until a step's batch is exactly full."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rl.data import ProblemSource
from rl.group_state import group_state, restore_group
from rl.groups import informative
from rl.reward import Reward, overlong_penalty
from rl.types import Group, Problem
from rollout.types import Completion, SamplingParams, SeedStream

ON_SHORTFALL = ("skip", "partial", "stop")

Sample = Callable[..., list[list[Completion]]]


class Shortfall(RuntimeError):
    """Too few informative groups, and the config says to stop."""


@dataclasses.dataclass(slots=True)
class Tally:
    """What the rounds of one step saw; every group counts, kept or not."""

    seconds: float = 0.0
    rounds: int = 0
    sampled: int = 0
    solve_all: int = 0
    solve_none: int = 0
    aged_out: int = 0
    carried: int = 0
    correct: list[np.ndarray] = dataclasses.field(default_factory=list)
    rewards: list[np.ndarray] = dataclasses.field(default_factory=list)
    lengths: list[np.ndarray] = dataclasses.field(default_factory=list)
    truncated: list[np.ndarray] = dataclasses.field(default_factory=list)
    examples: list[Group] = dataclasses.field(default_factory=list)

    def add(self, group: Group) -> None:
        self.sampled += 1
        self.solve_all += bool(group.correct.all())
        self.solve_none += not group.correct.any()
        self.correct.append(group.correct)
        self.rewards.append(group.rewards)
        self.lengths.append(np.array([len(c.token_ids) for c in group.completions]))
        self.truncated.append(np.array([c.truncated for c in group.completions]))
        if len(self.examples) < 4:
            self.examples.append(group)

    @property
    def accuracy(self) -> float | None:
        """Of all completions, kept or not; None where none were sampled."""
        return float(np.concatenate(self.correct).mean()) if self.correct else None

    @property
    def solve_all_rate(self) -> float | None:
        """Share of the sampled groups that are all right; None where there are none."""
        return self.solve_all / self.sampled if self.sampled else None


class Collector:
    """Fills batches with informative groups; what is over waits for the next step.

    Its whole memory is `state()`: with the same state, weights and problems the next
    `collect` gives the same groups.
    """

    def __init__(
        self,
        *,
        problems: ProblemSource,
        sample: Sample,
        reward: Reward,
        encode: Callable[[Problem], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
        seeds: SeedStream,
        check_stop: Callable[[], None],
        filter: bool,
        max_rounds: int,
        max_age: int,
        on_shortfall: str,
        max_shortfalls: int,
    ):
        """
        Args:
          problems: where prompts come from.
          sample: as `Sampler.sample`.
          reward: texts and problems to raw accuracy and base reward.
          encode: a problem to its prompt's token ids.
          decode: token ids to text.
          seeds: one per round.
          check_stop: raises where the run is to end; called at every completion.
          filter: drop groups that are all right or all wrong.
          max_rounds: of sampling, within one step.
          max_age: steps after which a group that was left over is dropped.
          on_shortfall: after `max_rounds` without a full batch: "skip" keeps the groups
            and samples on in the next step, "partial" trains on what there is, "stop"
            ends the run.
          max_shortfalls: in a row, under "skip", before the run is ended.
        """
        if on_shortfall not in ON_SHORTFALL:
            raise ValueError(
                f"dynamic_sampling.on_shortfall={on_shortfall!r}: must be one of"
                f" {ON_SHORTFALL}"
            )
        self._problems, self._sample, self._reward = problems, sample, reward
        self._encode, self._decode, self._seeds = encode, decode, seeds
        self._check_stop, self._filter = check_stop, filter
        self._max_rounds, self._max_age = max_rounds, max_age
        self._on_shortfall, self._max_shortfalls = on_shortfall, max_shortfalls
        self._left: list[Group] = []
        self._shortfalls = 0
        self._acceptance = 1.0

    def collect(
        self,
        step: int,
        *,
        groups: int,
        params: SamplingParams,
        overlong_buffer: int,
        overlong_factor: float,
    ) -> tuple[list[Group], Tally]:
        """Samples until `groups` informative groups are there.

        Args:
          step: the policy version, which is the number of steps done.
          groups: of a full batch.
          params: `n` is G, the group size.
          overlong_buffer, overlong_factor: see `rl.reward.overlong_penalty`.

        Returns:
          Exactly `groups` groups; or fewer under "partial"; or none, where this step
          has to be skipped. And the tally of what was sampled.

        Raises:
          Shortfall: under "stop", or after too many skips in a row.
        """
        tally = Tally()
        began = time.perf_counter()
        young = [g for g in self._left if step - g.born <= self._max_age]
        tally.aged_out = len(self._left) - len(young)
        tally.carried = len(young)
        kept = young
        while len(kept) < groups and tally.rounds < self._max_rounds:
            missing = groups - len(kept)
            # Ask for as many as the last acceptance rate needs, within one batch more.
            n = min(math.ceil(missing / max(self._acceptance, 0.1)), 2 * groups)
            drawn = self._round(step, n, params, overlong_buffer, overlong_factor)
            tally.rounds += 1
            accepted = [g for g in drawn if not self._filter or informative(g)]
            for group in drawn:
                tally.add(group)
            self._acceptance = 0.5 * self._acceptance + 0.5 * len(accepted) / n
            kept += accepted
        tally.seconds = time.perf_counter() - began
        if len(kept) >= groups:
            self._left, self._shortfalls = kept[groups:], 0
            return kept[:groups], tally
        return self._short(kept, groups, tally), tally

    def _short(self, kept: list[Group], groups: int, tally: Tally) -> list[Group]:
        self._shortfalls += 1
        solved = f"{tally.solve_all} all right, {tally.solve_none} all wrong"
        message = (
            f"{len(kept)} of {groups} informative groups after {tally.rounds} rounds"
            f" ({tally.sampled} groups sampled: {solved})"
        )
        if self._on_shortfall == "stop":
            raise Shortfall(f"{message}; dynamic_sampling.on_shortfall='stop'")
        if self._on_shortfall == "partial" and kept:
            self._left = []
            return kept
        self._left = kept
        if self._shortfalls >= self._max_shortfalls:
            raise Shortfall(
                f"{message}; {self._shortfalls} steps in a row"
                " (dynamic_sampling.max_shortfalls)"
            )
        return []

    def _round(self, step, n, params, overlong_buffer, overlong_factor) -> list[Group]:
        problems = self._problems.draw(n)
        prompts = [np.asarray(self._encode(p), np.int32) for p in problems]
        completions = self._sample(
            [p.tolist() for p in prompts],
            params,
            seed=self._seeds.next(),
            on_finished=lambda *_: self._check_stop(),
        )
        flat = [c for group in completions for c in group]
        texts = [self._decode(c.token_ids.tolist()) for c in flat]
        correct, rewards = self._reward(
            texts, [p for p in problems for _ in range(params.n)]
        )
        rewards = rewards + overlong_penalty(
            np.array([len(c.token_ids) for c in flat]),
            max_tokens=params.max_tokens,
            buffer=overlong_buffer,
            factor=overlong_factor,
        )
        return [
            Group(
                problem=problem,
                prompt_ids=prompt,
                completions=tuple(group),
                correct=correct[i * params.n : (i + 1) * params.n],
                rewards=rewards[i * params.n : (i + 1) * params.n],
                born=step,
            )
            for i, (problem, prompt, group) in enumerate(
                zip(problems, prompts, completions, strict=True)
            )
        ]

    def state(self) -> dict[str, Any]:
        return {
            "left": [group_state(g) for g in self._left],
            "shortfalls": self._shortfalls,
            "acceptance": self._acceptance,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._left = [restore_group(g) for g in state["left"]]
        self._shortfalls = state["shortfalls"]
        self._acceptance = state["acceptance"]
