"""Holds a run: its objects, its progress, and what it saves and reports.

`open_run` makes the objects and restores the newest checkpoint. `rl.loop.train` calls
the methods of `Run`.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from configs.schema import config_json
from rl import files
from rl.alarms import Alarm, Alarms
from rl.base_model import base_folder
from rl.errors import one_line
from rl.groups.ahead import Ahead
from rl.groups.collect import Collector, Shortfall
from rl.groups.curriculum import Curriculum
from rl.groups.extra import load_extra_groups
from rl.groups.packing import padding_fraction
from rl.groups.stats import RolloutStats, staleness_metrics
from rl.held_out import evaluate_sets, scalars_of, score_of
from rl.metrics import (
    Compiles,
    MetricsWriter,
    Stopwatch,
    console_line,
    speed_metrics,
)
from rl.problems.reading import HELD_OUT, write_problems
from rl.processes import group
from rl.processes.stopping import Stopped, StopSignals
from rl.progress import phase
from rl.reward.rewards import RewardError
from rl.run_spec import EVALUATION, TRAINING, RunSpec
from rl.setup import make_engine
from rl.start_page import config_changes, start_page
from rl.types import Batch, Group, Hyper
from rl.update.objective import update_metrics
from rl.workdir import manifest
from rl.workdir.dump import dump_updates
from rl.workdir.examples import example_rows
from rl.workdir.export import model_card
from rl.workdir.trace import Trace
from rollout.types import SamplerError

Result = TypeVar("Result")


@contextlib.contextmanager
def open_run(
    spec: RunSpec,
    workdir: pathlib.Path,
    processes: group.Processes,
    stop: StopSignals,
    *,
    accept_changes: bool,
) -> Iterator["Run"]:
    """Opens a run, restored from its newest intact checkpoint if it has one.

    Also records the run in the workdir and prints the start page. `stop.check` is
    called at intervals during sampling.
    """
    c = spec.config
    with phase("base", c.model.path or c.model.maker):
        base = base_folder(c)  # before the other processes read it
    with phase("identify", "hashes the base and the problems"):
        identity = manifest.identify(spec, base)
    for line in manifest.begin(workdir, identity, accept_changes=accept_changes):
        print(line)
    files.replace(workdir / "config.json", config_json(c) + "\n")
    for i, held_out in enumerate(spec.held_out):
        # `tools.evaluate` reads these files and need not call the config's functions.
        name = f"held_out_{held_out.name}.jsonl" if i else HELD_OUT
        write_problems(workdir / name, held_out.problems)
    print(start_page(spec, workdir), flush=True)
    processes.announce("begin", config_json(c))  # followers make their engines too
    run = Run(spec, workdir, processes, stop)
    # The engine closes before the collector, and ends sampling that is in progress. The
    # writer closes first, because metric loggers may buffer rows until then.
    with (
        contextlib.closing(run.collector),
        contextlib.closing(run.rewards),
        contextlib.closing(run.engine),
        run.trace,
        stop.grace_period(grace_seconds=c.checkpoint.grace_seconds),
        contextlib.closing(run.restore()),
    ):
        yield run


@dataclasses.dataclass(eq=False)
class Run:
    """Makes and holds the objects of a run, and its progress."""

    spec: RunSpec
    workdir: pathlib.Path
    processes: group.Processes
    stop: StopSignals
    writer: MetricsWriter = dataclasses.field(init=False)  # made by `restore`

    def __post_init__(self) -> None:
        spec, c = self.spec, self.spec.config
        self.engine = make_engine(spec, self.workdir, self.stop.check, self.processes)
        self.rewards = spec.open_rewards()
        collector = Collector(
            curriculum=Curriculum(
                spec.stages, spec.train, seed=c.seed, sampling=c.sampling
            ),
            sample=self.engine.sample,
            reward=self.rewards.reward(TRAINING),
            decode=spec.decode,
            prompts=spec.train_set.prompts,
            stop_token_ids=spec.stop_token_ids,
            config=c,
        )
        self.collector: Collector | Ahead = collector
        if c.rollout.schedule != "sync":
            self.collector = Ahead(collector, c)
        self.alarms = Alarms(c.alarms)
        self.trace = Trace(self.workdir, steps=c.profile.steps)
        self.extra_groups = load_extra_groups(
            c.rollout.extra_groups,
            problems=spec.train,
            encode=spec.encode,
            tokenize=spec.tokenize,
        )
        self.done = 0  # number of steps done, which is also the policy version
        # Summaries of the evaluations of the base model and of the newest policy.
        self.base: dict[str, Any] | None = None
        self.latest: dict[str, Any] = {}
        self.evaluated = -1  # step of the newest evaluation
        self.healthy = True  # whether the last step had no warning
        # Time at which the run would have started without interruptions.
        self.started = time.monotonic()
        self._compiles = Compiles()
        self._counted: Mapping[str, int] = {}

    def restore(self) -> MetricsWriter:
        """Restores the newest intact checkpoint, if any, and publishes its policy.

        Returns the writer of the run's metrics, which the caller closes.
        """
        self.stop.finish = self.engine.checkpoints.finish
        with phase("serve", "publishes the base or the newest checkpoint"):
            restored = self.engine.restore()
            self.engine.publish(restored[0] if restored else 0)
        if restored:
            self.done, loop = restored
            try:
                self.collector.restore(loop["rollouts"])
                self.alarms.restore(loop["alarms"])
                self.base, self.latest = loop["base"], loop["latest"]
                self.evaluated = loop["evaluated"]
                self.started -= loop["wall_seconds"]
            except (KeyError, TypeError) as error:
                raise ValueError(
                    f"{self.workdir}: another version of this code wrote the checkpoint"
                    f" of step {self.done} ({one_line(error)}); resume with that"
                    " version, or use another --workdir"
                ) from error
            print(f"resuming after step {self.done}", flush=True)
        self.writer = MetricsWriter(
            self.workdir,
            keep=self.done if restored else -1,
            evaluated=self.evaluated,
            config=config_changes(self.spec.config),
            sinks=self.spec.sinks,
        )
        return self.writer

    def state(self) -> dict[str, Any]:
        return {
            "rollouts": self.collector.state(),
            "alarms": self.alarms.state(),
            "base": self.base,
            "latest": self.latest,
            "evaluated": self.evaluated,
            "wall_seconds": time.monotonic() - self.started,
        }

    def save(
        self, state: Mapping[str, Any], *, healthy: bool, wait: bool = False
    ) -> None:
        score = score_of(self.latest) if state["evaluated"] == self.done else None
        with self.stop.saving():
            self.engine.save(self.done, state, healthy=healthy, score=score)
            if wait:
                self.engine.checkpoints.wait()

    def interruptible(self, work: Callable[[], Result]) -> Result:
        """Runs `work`; after a stop or an expected error, saves the state from before.

        Saves nothing if the base model has not been evaluated.
        """
        before = self.state()
        # Not a context manager: a signal may arrive just after its `__exit__`.
        try:
            with self.stop.interruptible():
                return work()
        except (Stopped, Shortfall, RewardError, SamplerError) as end:
            if self.base is not None:
                self.save(before, healthy=self.healthy, wait=True)
                if isinstance(end, Stopped):
                    saved = self.engine.checkpoints.latest()
                    print(f"{end}: saved after step {saved}", flush=True)
            raise

    @contextlib.contextmanager
    def checkpoint_on_error(self) -> Iterator[None]:
        """In a single-process run, saves a policy that the sampler cannot publish."""
        try:
            yield
        except (SamplerError, OSError):
            # Saving is a joint call, and other processes may still be in `publish`.
            # Not healthy, because the alarms have not checked this step yet.
            if self.processes.alone:
                self.save(self.state(), healthy=False, wait=True)
            raise

    def begin_step(self) -> Stopwatch:
        self._counted = self._counts()
        self.trace.begin(self.done + 1)
        return Stopwatch()

    def _counts(self) -> dict[str, int]:
        """Returns counts since the start, whose increases are metrics of a step."""
        rewards = {f"verifier/{k}": n for k, n in self.rewards.counts.items()}
        return {"timing/compiled_programs": self._compiles.programs, **rewards}

    def log_update(
        self,
        groups: list[Group],
        mini_batches: list[list[Batch]],
        hypers: list[Hyper],
        update_stats: list[dict[str, Any]],
        clock: Stopwatch,
    ) -> dict[str, float]:
        """Writes, once, the dump of a step with skipped updates; returns metrics."""
        engine, step = self.engine, self.done
        if any(s["skipped"] for s in update_stats):
            engine.checkpoints.wait()
            dump_updates(self.workdir, step, groups, mini_batches, hypers, update_stats)
        batches = [batch for mini_batch in mini_batches for batch in mini_batch]
        tokens = float(sum((batch.segment_ids != 0).sum() for batch in batches))
        passes = len(hypers) / len(mini_batches)
        return update_metrics(update_stats) | {
            **staleness_metrics(groups, step),
            "schedule/learning_rate": float(hypers[-1].learning_rate),
            "schedule/updates": engine.updates,
            "packing/padding": padding_fraction(batches),
            "packing/tokens": tokens,
            "speed/update_tokens": tokens * passes / clock.seconds["update"],
        }

    def end_step(
        self, of_update: Mapping[str, float], stats: RolloutStats, clock: Stopwatch
    ) -> None:
        """Writes a step's metrics and examples; raises Alarm if one ends the run."""
        engine, steps = self.engine, self.spec.config.steps
        metrics = {**stats.metrics(), **of_update}
        metrics |= engine.sampler.metrics() | speed_metrics(metrics, clock)
        for name, count in self._counts().items():
            metrics[name] = count - self._counted.get(name, 0)
        metrics["checkpoint/step"] = engine.checkpoints.latest() or 0
        # The time of a step that compiled programs does not predict later steps.
        compiled = metrics["timing/compiled_programs"]
        left = None if compiled else clock.total * (steps - self.done)
        print(console_line(self.done, steps, metrics, left), flush=True)
        self.writer.scalars(self.done, metrics)
        examples = example_rows(
            stats,
            functools.partial(self.spec.decode, show_unknown=True),
            self.spec.decode_prompt,
            samples=self.spec.config.log.samples,
            after=self.spec.config.reward.after,
        )
        self.writer.samples(self.done, examples)
        warnings, alarm = self.alarms.check(metrics)
        for warning in warnings.values():
            print(f"WARNING: step {self.done}: {warning}", flush=True)
        if alarm:
            raise Alarm(alarm)
        self.healthy = not warnings

    def due(self, every_steps: int) -> bool:
        """Returns whether the newest step is the last or a multiple of the number."""
        last = self.done == self.spec.config.steps
        return last or (every_steps > 0 and self.done % every_steps == 0)

    def evaluate(self, *, whole: bool = False) -> None:
        """Evaluates the policy, on all problems if `whole` or at the start or end."""
        whole = whole or self.base is None or self.done == self.spec.config.steps
        summary = self.interruptible(
            lambda: evaluate_sets(
                self.spec,
                self.done,
                whole=whole,
                sampler=self.engine,
                judge=self.rewards.reward(EVALUATION),
            )
        )
        self.latest, self.evaluated = summary, self.done
        if self.base is None:
            self.base = summary
        if scalars := scalars_of(summary):
            self.writer.scalars(self.done, scalars)

    def finish(self, end_reason: str) -> dict[str, Any]:
        """Exports the policy if the last update was made; returns the summary."""
        in_a_row, skipped = self.engine.skipped
        unhealthy = f"last updates not finite: {in_a_row}" if in_a_row else ""
        card = model_card(
            json.loads(config_json(self.spec.config)),
            step=self.done,
            evaluations={"base": self.base or {}, "final": self.latest},
        )
        exported = self.engine.export(
            str(self.workdir / "hf"), card=card, dtype=self.spec.config.export.dtype
        )
        return {
            "base": self.base,
            "final": self.latest,
            "steps": self.done,
            "ended": end_reason,
            "unhealthy": unhealthy,
            "exported": exported,
            "updates": self.engine.updates,
            "skipped": skipped,
            "wall_seconds": time.monotonic() - self.started,
        }
