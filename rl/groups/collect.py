"""Implements dynamic sampling: samples and judges groups until a step has enough."""

import dataclasses
import functools
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from configs.base import RunConfig, in_stage
from configs.checks import filter_on
from rl.groups.curriculum import Curriculum, Draw
from rl.groups.state import from_json, to_json
from rl.groups.stats import RolloutStats
from rl.reward.verifier import Reward
from rl.types import Group
from rollout.seeds import Stream, generator, run_seed
from rollout.types import EMPTY, Completion, SamplingParams

_G = TypeVar("_G", Group, "PartialGroup")

MAX_SHORTFALLS = 5  # consecutive steps without an update after which the run ends


class Shortfall(RuntimeError):
    """Signals that too few groups are informative and that the run must end."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PartialGroup:
    """Represents a group with at least one unfinished completion.

    `created_step` is defined in `rl.types.Group`. While a group has no tokens, each
    round sets `created_step` to the current step.
    """

    draw: Draw
    prompt_ids: np.ndarray  # int32 [P]
    created_step: int
    completions: tuple[Completion, ...]  # G, finished or not

    @property
    def tokens(self) -> int:
        return sum(len(c.token_ids) for c in self.completions)

    def fits(self, params: SamplingParams) -> bool:
        """Returns whether the group can be completed with these sampling parameters."""
        return len(self.completions) == params.n and all(
            len(c.token_ids) < params.max_tokens or not c.unfinished
            for c in self.completions
        )


@dataclasses.dataclass(kw_only=True, eq=False)
class Collector:
    """Collects informative groups for each step and retains surplus groups.

    If sampler and reward are deterministic, the groups depend only on `state()`, the
    weights and the step.

    Without `dynamic_sampling.filter`, every group with two or more verdicts counts as
    informative. With `dynamic_sampling.carry` (APRIL, arXiv 2509.18521), a round may
    end before all of its groups are complete: once enough groups are informative, and
    all groups older than `max_age` steps are complete. The rest continues in the next
    round.
    """

    curriculum: Curriculum
    sample: Callable[..., list[list[Completion]]]  # like `Sampler.sample`
    reward: Reward  # judges the texts of several groups
    decode: Callable[[Sequence[int]], str]  # converts a completion to text
    prompts: Sequence[np.ndarray]  # int32 [P] by `Draw.index`, template applied
    stop_token_ids: tuple[int, ...]  # ids that end a completion
    config: RunConfig  # of the run; `in_stage` applies the settings of a stage

    def __post_init__(self) -> None:
        self.settings = self.config.dynamic_sampling
        self.prompts_per_step = self.config.batch.prompts_per_step
        self.filter_on = filter_on(self.config)
        self._max_age = self.settings.max_age + self.settings.carry
        self._left: list[Group] = []
        self._partial: list[PartialGroup] = []
        self._rounds, self._shortfalls, self._informative_share = 0, 0, 1.0
        self._temperature = self.config.rollout.temperature

    def collect(self, step: int) -> tuple[list[Group], RolloutStats]:
        """Collects `prompts_per_step` informative groups in up to `max_rounds` rounds.

        `step` is the number of steps before the one that trains on the groups. If too
        few groups are informative, `on_shortfall` decides: "partial" returns these
        groups, "skip" returns an empty list, and "stop" raises Shortfall. A step with
        an empty list has no update. `MAX_SHORTFALLS` such steps in a row raise
        Shortfall.
        """
        config = in_stage(self.config, self.curriculum.begin(step))
        params = SamplingParams(
            n=config.rollout.group_size,
            max_tokens=config.rollout.max_response_tokens,
            temperature=config.rollout.temperature,
            stop_token_ids=self.stop_token_ids,
        )
        stats, size = RolloutStats(config, self.filter_on), self.prompts_per_step
        began = time.perf_counter()
        # All groups of an update must have the same temperature.
        alike = params.temperature == self._temperature
        self._temperature = params.temperature
        oldest = step - self._max_age
        kept = [g for g in self._left if alike and g.created_step >= oldest]
        stats.aged_out = len(self._left) - len(kept)
        stats.carried = len(kept)
        partial = [g for g in self._partial if alike and g.fits(params)]
        stats.partial = sum(group.tokens > 0 for group in partial)
        stats.aged_out += sum(g.tokens > 0 for g in self._partial) - stats.partial
        self._partial = partial
        while stats.rounds < self.settings.max_rounds and (
            len(kept) < size or any(self._due(g, step) for g in self._partial)
        ):
            missing = size - len(kept)
            judged = self._round(step, missing, params)
            stats.rounds += 1
            for draw, group in judged:
                stats.add(draw, group, size=params.n)
            accepted = [group for _, group in judged if self._teaches(group)]
            if judged and missing > 0:
                share = len(accepted) / len(judged)
                self._informative_share = 0.5 * self._informative_share + 0.5 * share
            kept += accepted
        if self.settings.carry:
            # Oldest first, then by a hash. If sorted by the time of completion, the
            # longest groups would always be the surplus.
            def order(g: Group) -> tuple[int, int]:
                text = f"{g.created_step} {g.problem.id}"
                return g.created_step, zlib.crc32(text.encode())

            kept.sort(key=order)
        stats.unfinished = sum(
            c.unfinished for g in self._partial if g.tokens for c in g.completions
        )
        stats.seconds = time.perf_counter() - began
        if len(kept) >= size:
            groups, self._left = kept[:size], kept[size:]
            self._shortfalls = 0
        else:
            groups = self._short(kept, stats)
        self.curriculum.end_step(stats.counts, updates=bool(groups))
        stats.curriculum = self.curriculum.metrics()
        return groups, stats

    def _short(self, kept: list[Group], stats: RolloutStats) -> list[Group]:
        self._shortfalls += 1
        solved = f"{stats.solve_all} all right, {stats.solve_none} all wrong"
        message = (
            f"only {len(kept)} of {self.prompts_per_step} informative groups (rounds:"
            f" {stats.rounds}, sampled groups: {stats.groups}, {solved}); use"
            " problems whose completions differ in correctness or reward, or raise"
            " config.dynamic_sampling.max_rounds"
        )
        if self.settings.on_shortfall == "stop":
            raise Shortfall(f"config.dynamic_sampling.on_shortfall='stop': {message}")
        if self.settings.on_shortfall == "partial" and kept:
            self._left, self._shortfalls = [], 0
            return kept
        # Without an update the policy stays the same, so groups do not age.
        self._left, self._partial = _renumbered(kept), _renumbered(self._partial)
        if self._shortfalls >= MAX_SHORTFALLS:
            raise Shortfall(
                f"{self._shortfalls} consecutive steps had no update: {message}"
            )
        return []

    def _teaches(self, group: Group) -> bool:
        # A single judged completion cannot be compared with others.
        if len(group.completions) < 2:
            return False
        return not self.settings.filter or group.informative(self.filter_on)

    def _due(self, group: PartialGroup, step: int) -> bool:
        return group.tokens > 0 and step - group.created_step >= self._max_age

    def _round(
        self, step: int, missing: int, params: SamplingParams
    ) -> list[tuple[Draw, Group]]:
        """Samples and judges a round of groups; returns those that are complete."""
        carry, oversample = self.settings.carry, self.settings.oversample
        needed = max(0, missing) / max(self._informative_share, 0.1)
        if carry:
            count = max(0, math.ceil(oversample * needed) - len(self._partial))
        else:
            count = min(math.ceil(needed), int(oversample * self.prompts_per_step))
        number, self._rounds = self._rounds, self._rounds + 1
        seed = run_seed(self.config.seed, Stream.SAMPLING, number)
        groups = [
            group if group.tokens else dataclasses.replace(group, created_step=step)
            for group in self._partial
        ] + [
            PartialGroup(draw, self.prompts[draw.index], step, (EMPTY,) * params.n)
            for draw in self.curriculum.draw(count, size=params.n, seed=seed)
        ]
        prompts = [group.prompt_ids.tolist() for group in groups]
        completions = [list(group.completions) for group in groups]
        due = {i for i, group in enumerate(groups) if self._due(group, step)}
        judged: dict[int, Group] = {}
        judge = functools.partial(self._judge, groups, judged, params, number)

        def finished(prompt: int, sample: int, completion: Completion) -> None:
            completions[prompt][sample] = completion

        def enough() -> bool:
            judge(completions)
            teach = sum(map(self._teaches, judged.values()))
            return due <= judged.keys() and teach >= missing

        how: dict[str, Any] = {}
        if carry:
            partial = [group.completions for group in groups]
            how = {"partial": partial, "on_finished": finished, "on_pause": enough}
        completions = self.sample(prompts, params, seed=seed, **how)
        judge(completions)
        self._partial = [
            dataclasses.replace(group, completions=tuple(completions[i]))
            for i, group in enumerate(groups)
            if i not in judged
        ]
        return [(groups[i].draw, group) for i, group in judged.items()]

    def _judge(
        self,
        groups: Sequence[PartialGroup],
        judged: dict[int, Group],
        params: SamplingParams,
        number: int,
        completions: Sequence[Sequence[Completion]],
    ) -> None:
        """Judges the groups whose completions have all ended; adds them to `judged`.

        `judged` maps indices in `groups` to groups without the completions that have no
        verdict. `number` is that of the round.
        """
        ended = [
            i
            for i, of_group in enumerate(completions)
            if i not in judged and not any(c.unfinished for c in of_group)
        ]
        if not ended:
            return
        texts = [
            [self.decode(c.token_ids.tolist()) for c in completions[i]] for i in ended
        ]
        problems = [groups[i].draw.problem for i in ended]
        scores = [s for of_group in self.reward(texts, problems) for s in of_group]
        if self.config.reward.shuffle:
            # A control experiment: if such a run still improves the policy, the
            # information in the reward is not the cause.
            random = generator(run_seed(self.config.seed, Stream.SHUFFLING, number))
            scores = [scores[i] for i in random.permutation(len(scores))]
        names = dict.fromkeys(name for score in scores for name in score.components)
        remaining = iter(scores)
        for i in ended:
            pairs = [
                (completion, score)
                for completion, score in zip(completions[i], remaining, strict=False)
                if not math.isnan(score.reward)
            ]
            raw = np.array([s.reward for _, s in pairs], np.float32)
            lengths = np.array([len(c.token_ids) for c, _ in pairs])
            judged[i] = Group(
                problem=groups[i].draw.problem,
                prompt_ids=groups[i].prompt_ids,
                completions=tuple(c for c, _ in pairs),
                correct=np.array([s.verdict.correct is True for _, s in pairs], bool),
                raw=raw,
                rewards=raw
                + overlong_penalty(
                    lengths,
                    max_tokens=params.max_tokens,
                    buffer=self.config.reward.overlong_buffer,
                    factor=self.config.reward.overlong_factor,
                ),
                components={
                    name: np.array(
                        [s.components.get(name, math.nan) for _, s in pairs], np.float32
                    )
                    for name in names
                },
                rules=tuple(s.verdict.rule for _, s in pairs),
                created_step=groups[i].created_step,
            )
            self.curriculum.observe(groups[i].draw, judged[i])

    def state(self) -> dict[str, Any]:
        """Returns the state as JSON, for `restore`."""
        return {
            "problems": self.curriculum.state(),
            "rounds": self._rounds,
            "left": to_json(self._left),
            "partial": to_json(self._partial),
            "shortfalls": self._shortfalls,
            "informative_share": self._informative_share,
            "temperature": self._temperature,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a `state()`; call it before the first `collect`."""
        self.curriculum.restore(state["problems"])
        self._rounds = state["rounds"]
        self._left = list(from_json(list[Group], state["left"]))
        self._partial = list(from_json(list[PartialGroup], state["partial"]))
        self._shortfalls = state["shortfalls"]
        self._informative_share = state["informative_share"]
        self._temperature = state["temperature"]

    def wait(self) -> None:
        """Does nothing, since no sampling is in progress; see `Ahead.wait`."""

    def close(self) -> None:
        """Does nothing; see `Ahead.close`."""


def overlong_penalty(
    lengths: np.ndarray, *, max_tokens: int, buffer: int, factor: float
) -> np.ndarray:
    """Computes the soft overlong punishment (DAPO, arXiv 2503.14476, eq. 13).

    For L tokens, including the stop token, the result is
    `factor * min(0, -(L - (max_tokens - buffer)) / buffer)`, but at least `-factor`.
    """
    if not factor:
        return np.zeros(len(lengths), np.float32)
    over = (np.asarray(lengths) - (max_tokens - buffer)) / buffer
    return (-factor * np.clip(over, 0, 1)).astype(np.float32)


def _renumbered(groups: Sequence[_G]) -> list[_G]:
    """Adds 1 to `created_step` and to policy versions, so that groups do not age."""
    return [
        dataclasses.replace(
            group,
            created_step=group.created_step + 1,
            completions=tuple(
                dataclasses.replace(c, versions=c.versions + 1)
                for c in group.completions
            ),
        )
        for group in groups
    ]
