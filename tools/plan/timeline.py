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
`async` it interrupts what the servers draw. With `dynamic_sampling.carry` a round ends
with its last group that is needed, and what is unfinished keeps its slot until the
next.

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
from rl.batches.draws import Draws
from rl.batches.judge import Judge
from rl.problems.curriculum import Curriculum, Stage
from rl.progress import watch
from rl.reward.score import Score
from rl.types import Group, Problem
from rl.verifier import Verdict
from rollout.types import NOT_BEGUN, Completion, SamplingParams, so_far
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
            c.sampling,
            draws=self.draws,
            sample=self._sample,
            judge=take(Judge, c.reward)(
                reward=lambda groups, _: [[_SCORES[t] for t in g] for g in groups],
                decode=lambda ids: str(ids[0]),
            ),
            encode=lambda problem: np.array([int(problem.id)], np.int32),
            sampling=SamplingParams(
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

    def trained_on(
        self, groups: Sequence[Group], step: int
    ) -> tuple[float, collections.Counter]:
        """What groups are worth, and their tokens by how many versions they are old."""
        stale: collections.Counter = collections.Counter()
        for group in groups:
            for completion in group.completions:
                for version, count in self.ended[completion.token_ids[1]]:
                    stale[step - version] += count
        return float(len(groups)), stale

    def _sample(self, prompts, params, *, seed, begun=None, on_finished, on_pause=None):
        """As `Sampler.sample`; what is left unfinished stays in its slot."""
        found = so_far(prompts, params, begun)
        missing: dict[int, tuple[int, int]] = {}  # by key
        for p, (prompt, group) in enumerate(zip(prompts, found, strict=True)):
            unfinished = [s for s, c in enumerate(group) if c.unfinished]
            fresh = [s for s in unfinished if group[s] is NOT_BEGUN]
            keys = dict(zip(fresh, self.ask(prompt[0], len(fresh)), strict=True))
            for s in unfinished:
                missing[keys[s] if s in keys else group[s].token_ids[1]] = p, s
        asked = len(missing)
        while missing:
            key = self.next()
            p, s = missing.pop(key)
            found[p][s] = self.completion(key)
            on_finished(p, s, found[p][s])
            if on_pause is not None and on_pause():
                break
        self.judge(asked - len(missing))
        withdrawn = self.servers.withdraw()
        for key, (p, s) in missing.items():
            unfinished = dataclasses.replace(
                self.completion(key), finish_reason="unfinished"
            )
            found[p][s] = NOT_BEGUN if key in withdrawn else unfinished
        return found


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


def simulate(config: ConfigDict, figures: Figures, *, schedule: str) -> Timeline:
    """Runs a schedule for some steps.

    Args:
      config: of the run: batches, dynamic sampling, draws, `rollout.max_staleness`.
      figures: what it runs by.
      schedule: of `rl.batches.schedule`.

    Raises:
      ValueError: too few groups teach to fill batches.
    """
    pace, steps = figures.pace, int(figures.pace.steps)
    world = World(config, figures)
    servers = world.servers
    collector = world.collector()
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
            config.dynamic_sampling.carry = batches[batch]
            timeline = simulate(config.lock(), publishes[publish], schedule=schedule)
            way = {
                "schedule": schedule,
                "publish": publish,
                "batches": batch,
                "draws": draws,
            }
            found.append({"way": way} | timeline.row())
            count.update()
    return found
