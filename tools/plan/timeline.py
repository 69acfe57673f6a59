"""Sampler and trainer side by side, in simulated time: what a step takes, who waits.

Rounds are those of the run itself: its own collector and draws ask simulated servers
for completions, whose lengths and verdicts are drawn at random. So what fills a batch,
what is left over and what grows too old is not modelled but done. The trainer is three
figures, a step's scores and updates and a publish, and when a batch begins and when a
version is served is settled by the schedule as `rl.batches.schedule` does it:

    begin(s)   sync: once version s is served
               others: once batch s - 1 is there and step s - L has taken its own
    take(s)    once batch s is there and version s is served
    publish    after the update; `one_step_off` waits for batch s + 1 besides

A round waits for the longest of its completions, a publish holds the trainer, and under
`async` it interrupts what the servers draw. With `carried`, which no sampler here does
yet, nothing waits for the longest: groups begin wherever there is room, a batch is
there with its last group, and what is unfinished goes on in the next step.

What is left out: packing, logging, checkpoints, evaluations, the probe after a publish.
Solve rates stand still, lengths say nothing of verdicts, and there is one stage.
"""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from configs.schema import take
from rl.batches.collect import Collector, Shortfall
from rl.batches.draws import Draw, Drawn, Draws
from rl.batches.groups import informative
from rl.batches.parts import stands_for
from rl.problems.curriculum import Curriculum, Stage
from rl.progress import watch
from rl.reward.score import Score
from rl.types import Group, Problem
from rl.verifier import Verdict
from rollout.types import Completion, SamplingParams
from tools.plan.pace import Figures, loads_in_the_pause
from tools.plan.servers import Servers
from tools.plan.workload import Workload

_NONE, _VERSION = np.zeros(2, np.float32), np.zeros(2, np.int32)
_SCORES = {str(right): Score.of(Verdict(bool(right), None, "coin")) for right in (0, 1)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timeline:
    """What a schedule comes to, over the second half of the steps.

    Attributes:
      seconds: of a step.
      sample: seconds in which a batch was collected.
      trainer_idle: share of the time without a score or an update.
      servers_idle: share without a token or a prompt.
      slots_filled: share of all slots that had a completion to decode.
      staleness: by versions behind, the share of trained tokens.
      trained: share of the tokens drawn that were trained on.
      worth: of a batch's groups, in groups of one weight: (sum w)^2 / sum w^2.
    """

    seconds: float
    sample: float
    trainer_idle: float
    servers_idle: float
    slots_filled: float
    staleness: Mapping[int, float]
    trained: float
    worth: float

    @property
    def steps_per_hour(self) -> float:
        return 3600 / self.seconds

    @property
    def off_policy(self) -> float:
        """Share of the trained tokens that an older version drew."""
        return 1 - self.staleness.get(0, 0.0)

    def row(self) -> dict[str, Any]:
        """JSON-able."""
        told = {"steps_per_hour": self.steps_per_hour, "off_policy": self.off_policy}
        stale = {str(behind): share for behind, share in self.staleness.items()}
        return dataclasses.asdict(self) | told | {"staleness": stale}


class World:
    """Problems, servers, and completions that have a length and a verdict.

    Completions stand for theirs by two token ids: right or wrong, and their key.
    """

    def __init__(self, config: ConfigDict, figures: Figures):
        self._config, self._lengths = config, figures.lengths
        self._verdict = figures.pace.verdict
        self.servers = Servers(figures.sampling, prompt=figures.lengths.prompt)
        self.ended: list[tuple[tuple[int, int], ...]] = []  # by key
        self._right: list[int] = []
        self._random = np.random.default_rng(config.seed)
        group = config.rollout.group_size
        count = int(figures.pace.problems)
        self.rates = solve_rates(figures.pace.accepted, count, group=group)
        self.problems = [
            Problem(id=str(i), problem="?", answers=("4",), level=None)
            for i in range(count)
        ]
        stages = (Stage(name="all"),)
        curriculum = Curriculum(
            stages, self.problems, seed=config.seed, tell=lambda line: None
        )
        self.draws = take(Draws, config.sampling)(curriculum, self.problems)

    def collector(self) -> Collector:
        """The run's own."""
        c = self._config
        return take(
            Collector,
            c.dynamic_sampling,
            c.batch,
            c.reward,
            c.sampling,
            draws=self.draws,
            sample=self._sample,
            reward=lambda texts, problems: [_SCORES[text] for text in texts],
            encode=lambda problem: [int(problem.id)],
            decode=lambda ids: str(ids[0]),
            params=SamplingParams(
                n=c.rollout.group_size,
                max_tokens=c.rollout.max_response_tokens,
                stop_token_ids=(0,),
            ),
            seed=c.seed,
        )()

    def ask(self, problem: int, n: int) -> list[int]:
        """Asks for completions of a problem; their keys."""
        keys = list(range(len(self.ended), len(self.ended) + n))
        self.ended += [()] * n
        right = self._random.random(n) < self.rates[problem]
        self._right += right.astype(int).tolist()
        tokens = self._random.choice(self._lengths.completions, n)
        self.servers.ask(problem, keys, tokens.tolist())
        return keys

    def next(self) -> int:
        """The key of the next completion that ends."""
        ended = self.servers.next()
        self.ended[ended.key] = ended.tokens
        return ended.key

    def judge(self, completions: int) -> None:
        """Takes the time that verdicts take."""
        self.servers.rest(self.servers.now + completions * self._verdict)

    def completion(self, key: int) -> Completion:
        ids = np.array([self._right[key], key], np.int32)
        return Completion(ids, _NONE, "stop", _VERSION)

    def correct(self, keys: Sequence[int]) -> np.ndarray:
        return np.array([self._right[key] for key in keys], bool)

    def trained_on(
        self, groups: Sequence[Group], step: int
    ) -> tuple[float, collections.Counter]:
        """What groups are worth, and their tokens by how many versions they are old."""
        stale: collections.Counter = collections.Counter()
        for group in groups:
            for completion in group.completions:
                for version, count in self.ended[completion.token_ids[1]]:
                    stale[step - version] += count
        weights = np.array([group.weight for group in groups])
        worth = weights.sum() ** 2 / (weights**2).sum() if groups else 0.0
        return float(worth), stale

    def _sample(self, prompts, params, *, seed, on_finished):
        keys = [self.ask(prompt[0], params.n) for prompt in prompts]
        for _ in range(len(prompts) * params.n):
            self.next()
        self.judge(len(prompts) * params.n)
        return [[self.completion(key) for key in own] for own in keys]


def solve_rates(accepted: float, problems: int, *, group: int) -> np.ndarray:
    """Of each problem, so that a share of groups is expected to be accepted.

    Those that may teach have rates between 0.1 and 0.9; of the others one half is
    always right and one never. Of small groups fewer teach than all, whatever is asked
    for: with 8 completions 0.89 of them.
    """
    random = np.random.default_rng(2)
    rates = random.uniform(0.1, 0.9, problems)
    mixed = 1 - (rates**group + (1 - rates) ** group).mean()
    kind = random.random(problems)
    others = 1 - min(1.0, accepted / mixed)
    rates[kind < others / 2] = 1.0
    rates[kind > 1 - others / 2] = 0.0
    return rates


@dataclasses.dataclass(slots=True)
class _Open:
    """A group under way: its parts so far, and how many of the last are missing."""

    draw: Draw
    born: int
    keys: list[int]
    missing: int
    first: int
    ends: tuple[bool, bool] = (False, False)


class Carrying:
    """Collects as `Collector`, but waits for no completion that it can do without."""

    def __init__(self, world: World, config: ConfigDict):
        self._world, self._draws = world, world.draws
        self._size = config.rollout.group_size
        self._first = config.sampling.first or self._size
        self._groups = config.batch.prompts_per_step
        self._max_age = config.dynamic_sampling.max_age
        self._filter = config.dynamic_sampling.filter
        self._seed = config.seed
        self._offered: collections.deque[Draw] = collections.deque()
        self._open: dict[int, _Open] = {}  # by the keys that are missing
        self._left: list[Group] = []

    def collect(self, step: int) -> tuple[list[Group], None]:
        """See `Collector.collect`."""
        self._draws.begin(step)
        old = {
            key
            for key, group in self._open.items()
            if step - group.born > self._max_age
        }
        self._world.servers.drop(frozenset(old))
        for key in old:
            del self._open[key]
        kept = [g for g in self._left if step - g.born <= self._max_age]
        while len(kept) < self._groups:
            while not self._world.servers.waiting:
                self._begin(step)
            key = self._world.next()
            group = self._open.pop(key)
            group.missing -= 1
            if group.missing or self._goes_on(group):
                continue
            drawn = self._drawn(group)
            self._draws.observe([drawn], size=self._size)
            if not self._filter or informative(drawn.group):
                kept.append(drawn.group)
        self._left = kept[self._groups :]
        self._draws.settle(accuracy=None, solve_all=None, updates=True)
        self._world.judge(self._groups * self._size)
        return kept[: self._groups], None

    def _begin(self, step: int) -> None:
        if not self._offered:
            self._seed += 1
            self._offered += self._draws.draw(16, size=self._size, seed=self._seed)
        group = _Open(self._offered.popleft(), step, [], 0, self._first)
        rest = self._size - self._first
        group.ends = self._draws.ends(group.draw, self._first, rest)
        self._ask(group, self._first)

    def _ask(self, group: _Open, n: int) -> None:
        keys = self._world.ask(group.draw.place, n)
        group.keys, group.missing = group.keys + keys, n
        self._open |= dict.fromkeys(keys, group)

    def _goes_on(self, group: _Open) -> bool:
        """Asks for a group's second part, where it is to have one."""
        if len(group.keys) == self._size:
            return False
        correct = self._world.correct(group.keys)
        alike = correct.all() or not correct.any()
        if alike and group.ends[int(correct[0])]:
            return False
        self._ask(group, self._size - self._first)
        return True

    def _drawn(self, group: _Open) -> Drawn:
        correct = self._world.correct(group.keys)
        rewards = np.where(correct, 1.0, -1.0).astype(np.float32)
        weight = 1.0
        if self._first < len(correct):
            weight = stands_for(correct, first=self._first, ends=group.ends)
        made = Group(
            problem=group.draw.problem,
            prompt_ids=_VERSION,
            completions=tuple(self._world.completion(key) for key in group.keys),
            correct=correct,
            raw=rewards,
            rewards=rewards,
            born=group.born,
            weight=weight,
        )
        return Drawn(group.draw, made, first=self._first, asked=len(group.keys))


def simulate(
    config: ConfigDict, figures: Figures, *, schedule: str, carried: bool = False
) -> Timeline:
    """Runs a schedule for some steps.

    Args:
      config: of the run: batches, dynamic sampling, draws, `rollout.max_staleness`.
      figures: what it runs by.
      schedule: of `rl.batches.schedule`.
      carried: whether unfinished completions go on in the next step.

    Raises:
      ValueError: too few groups teach to fill batches.
    """
    pace, steps = figures.pace, int(figures.pace.steps)
    world = World(config, figures)
    servers = world.servers
    collector = Carrying(world, config) if carried else world.collector()
    ahead = {"sync": 0, "one_step_off": 1, "async": config.rollout.max_staleness}
    lag, settles = ahead[schedule], schedule == "one_step_off"
    served, taken, rows = [0.0], [], []

    def publish(begin: float) -> None:
        end = begin + pace.publish
        servers.publish(len(served), at=end - pace.pause, pause=pace.pause)
        served.append(end)

    trained = 0.0
    for step in range(steps):
        before = servers.busy, servers.filled, servers.drawn
        servers.rest(taken[max(step - lag, 0)] if lag and step else served[-1])
        begin = servers.now
        try:
            groups, _ = collector.collect(step)
        except Shortfall as end:
            raise ValueError(f"accepted={pace.accepted:g}: {end}") from None
        collected = servers.now - begin
        if settles and step:
            publish(max(trained, servers.now))
        taken.append(max(servers.now, served[step]))
        trained = taken[-1] + (pace.train if groups else 0.0)
        if not settles:
            publish(trained)
        spent = np.subtract((servers.busy, servers.filled, servers.drawn), before)
        rows.append((collected, *spent, *world.trained_on(groups, step)))
    half = steps // 2
    seconds = (taken[-1] - taken[half - 1]) / (steps - half)
    sample, busy, filled, drawn, worth = np.mean([r[:-1] for r in rows[half:]], axis=0)
    stale = sum((row[-1] for row in rows[half:]), collections.Counter())
    tokens = sum(stale.values())
    return Timeline(
        seconds=seconds,
        sample=float(sample),
        trainer_idle=1 - pace.train / seconds,
        servers_idle=float(1 - busy / seconds),
        slots_filled=float(filled / seconds),
        staleness={behind: stale[behind] / tokens for behind in sorted(stale)},
        trained=float(tokens / (drawn * (steps - half))),
        worth=float(worth),
    )


# What is not as configured, in each way of sampling that is compared.
_DRAWS = {
    "as configured": {},
    "signal": {"policy": "signal"},
    "signal, 4 first": {"policy": "signal", "first": 4},
}


def make_variants(
    work: Workload, figures: Figures, schedules: Sequence[str]
) -> list[dict[str, Any]]:
    """Every schedule with other publishes, batches and draws than the config's."""
    publishes = {"staged": figures, "in the pause": loads_in_the_pause(figures, work)}
    batches = {"whole rounds": False, "carried": True}
    ways = [
        ("in the pause", "whole rounds", "as configured"),
        *itertools.product(["staged"], batches, _DRAWS),
    ]
    found = []
    total = len(schedules) * len(ways)
    with watch("simulate", total=total, unit="timelines") as count:
        for schedule, (publish, batch, draws) in itertools.product(schedules, ways):
            config = ConfigDict(work.config.to_dict())
            config.sampling.update(_DRAWS[draws])
            timeline = simulate(
                config.lock(),
                publishes[publish],
                schedule=schedule,
                carried=batches[batch],
            )
            way = {
                "schedule": schedule,
                "publish": publish,
                "batches": batch,
                "draws": draws,
            }
            found.append({"way": way} | timeline.row())
            count.update()
    return found
