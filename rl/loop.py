"""Runs the training loop: sample, verify, filter, update, publish. See `train`."""

import contextlib
import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from configs.schema import config_json
from rl.alarms import Alarm
from rl.errors import one_line
from rl.groups.collect import Shortfall
from rl.groups.packing import pack_groups, padding_fraction
from rl.groups.rollouts import staleness_metrics
from rl.groups.stats import RolloutStats
from rl.held_out import is_partial, scalars_of, score_of
from rl.metrics import (
    LEGEND,
    Compiles,
    MetricsWriter,
    Stopwatch,
    console_line,
    sampling_metrics,
    speed_metrics,
)
from rl.processes import group
from rl.processes.stopping import Stopped, StopSignals
from rl.progress import phase
from rl.reward.rewards import RewardError
from rl.run_spec import RunSpec
from rl.setup import Parts, open_parts
from rl.start_page import config_changes
from rl.types import Batch, Group, Hyper
from rl.update.objective import update_metrics
from rl.update.optimizer import make_hypers
from rl.workdir.dump import dump_updates
from rl.workdir.examples import example_rows
from rl.workdir.export import model_card
from rollout.types import SamplerError

Result = TypeVar("Result")


def train(
    spec: RunSpec,
    workdir: pathlib.Path,
    processes: group.Processes,
    stop: StopSignals,
    *,
    accept_changes: bool = False,
) -> dict[str, Any]:
    """Runs the training loop, from the newest intact checkpoint if there is one.

    With several processes, only the leader runs `train`; others run `joint.follow`.
    The caller locks `workdir`. For `accept_changes` see `rl.workdir.manifest.begin`.

    Returns:
      The content of summary.json.

    Raises:
      ValueError: the run cannot start or continue, such as in another run's workdir.
      OSError: a file cannot be written, such as a checkpoint.
      Stopped, RewardError, SamplerError: a signal, a user's reward or the sampler ended
        the run; completed steps are saved if possible.
      Alarm: an alarm of `alarms.stop_on` ended the run; earlier checkpoints stay.
    """
    c = spec.config
    with (
        open_parts(
            spec, workdir, processes, stop.check, accept_changes=accept_changes
        ) as parts,
        stop.grace_period(grace_seconds=c.checkpoint.grace_seconds),
        _open_run(spec, workdir, parts, processes, stop) as run,
    ):
        engine = parts.engine
        if run.base is None:
            run.evaluate()
        elif run.evaluation_due() and run.evaluated < run.done:
            # The evaluation after this step is missing, for example after a signal.
            run.evaluate()
            if (score := score_of(run.latest)) is not None:
                engine.checkpoints.record_score(run.done, score)

        print(LEGEND, flush=True)
        end_reason = ""  # set if the run ends before its last step
        while run.done < c.steps:
            clock = run.begin_step()

            # Sample and verify completions until there are enough informative groups,
            # such as those with right and wrong completions (`groups.collect`).
            try:
                with clock.phase("sample"):
                    groups, stats = run.interruptible(
                        lambda: parts.rollouts.take(run.done)
                    )
            except Shortfall as shortfall:
                end_reason = str(shortfall)
                break
            metrics: dict[str, float] = {}

            if groups:
                # Compute advantages within each group and pack the completions into
                # rows, with a loss weight for each token (`groups.packing`).
                with clock.phase("pack"):
                    mini_batches = pack_groups(
                        groups,
                        c,
                        version=run.done,
                        row_multiple=spec.row_multiple,
                        extra_groups=parts.extra_groups,
                    )
                    hypers = make_hypers(
                        stats.config,
                        updates=engine.updates,
                        mini_batches=len(mini_batches),
                    )

                # Compute the old log-probabilities if needed. Then update once per
                # mini-batch and epoch: sum the gradients of micro-batches (`engine`).
                with clock.phase("update"):
                    update_stats = engine.update(mini_batches, hypers)
                with clock.phase("log"):
                    metrics = run.log_update(
                        groups, mini_batches, hypers, update_stats, clock
                    )
            else:
                print(
                    f"step {run.done + 1}: too few informative groups, no update:"
                    f" {stats.informative} of {stats.groups}; see"
                    " config.dynamic_sampling"
                )

            # Publish the new policy to the sampler. `one_step_off` first waits until
            # sampling ends.
            with clock.phase("sample"):
                parts.rollouts.wait()
            run.done += 1
            with clock.phase("publish"), run.checkpoint_on_error():
                engine.publish(run.done)

            run.end_step(metrics, stats, clock)
            if run.evaluation_due():
                run.evaluate()
            if run.done == c.steps or due(run.done, c.checkpoint.every_steps):
                run.save(run.state(), healthy=run.healthy)

        if end_reason:
            print(f"ending after step {run.done}: {end_reason}", flush=True)
        # Evaluate at the end, also if `steps` was set below the steps already done.
        if run.evaluated < run.done or is_partial(run.latest):
            run.evaluate(whole=True)
        return run.finish(end_reason)


def due(step: int, every_steps: int) -> bool:
    return every_steps > 0 and step % every_steps == 0


@contextlib.contextmanager
def _open_run(
    spec: RunSpec,
    workdir: pathlib.Path,
    parts: Parts,
    processes: group.Processes,
    stop: StopSignals,
) -> Iterator["_Run"]:
    """Yields the run, restored from its newest intact checkpoint if it has one."""
    run = _Run(spec=spec, workdir=workdir, parts=parts, processes=processes, stop=stop)
    stop.finish = parts.engine.checkpoints.finish
    with phase("serve", "publishes the base or the newest checkpoint"):
        restored = parts.engine.restore()
        parts.engine.publish(restored[0] if restored else 0)
    if restored:
        run.done, loop = restored
        try:
            parts.rollouts.restore(loop["rollouts"])
            parts.alarms.restore(loop["alarms"])
            run.base, run.latest = loop["base"], loop["latest"]
            run.evaluated = loop["evaluated"]
            run.started -= loop["wall_seconds"]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{workdir}: another version of this code wrote the checkpoint of step"
                f" {run.done} ({one_line(error)}); resume with that version, or use"
                " another --workdir"
            ) from error
        print(f"resuming after step {run.done}", flush=True)
    run.writer = MetricsWriter(
        workdir,
        keep=run.done if restored else -1,
        evaluated=run.evaluated,
        config=config_changes(spec.config),
        sinks=spec.sinks,
    )
    with contextlib.closing(run.writer):  # metric loggers may buffer rows until closed
        yield run


@dataclasses.dataclass(kw_only=True)
class _Run:
    spec: RunSpec
    workdir: pathlib.Path
    parts: Parts
    processes: group.Processes
    stop: StopSignals
    writer: MetricsWriter = dataclasses.field(init=False)
    done: int = 0  # number of steps done, which is also the policy version
    base: dict[str, Any] | None = None  # summary of the base model's evaluation
    # Summary of the newest evaluation.
    latest: dict[str, Any] = dataclasses.field(default_factory=dict)
    evaluated: int = -1  # step of the newest evaluation
    healthy: bool = True  # whether the last step had no warning
    # Time at which the run would have started without interruptions.
    started: float = dataclasses.field(default_factory=time.monotonic)
    _compiles: Compiles = dataclasses.field(default_factory=Compiles)
    _counted: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def state(self) -> dict[str, Any]:
        return {
            "rollouts": self.parts.rollouts.state(),
            "alarms": self.parts.alarms.state(),
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
            self.parts.engine.save(self.done, state, healthy=healthy, score=score)
            if wait:
                self.parts.engine.checkpoints.wait()

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
                    saved = self.parts.engine.checkpoints.latest()
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
        self.parts.trace.begin(self.done + 1)
        return Stopwatch()

    def _counts(self) -> dict[str, int]:
        """Returns counts since the start, whose increases are metrics of a step."""
        rewards = {f"verifier/{k}": n for k, n in self.parts.rewards.counts.items()}
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
        engine, step = self.parts.engine, self.done
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
        engine, steps = self.parts.engine, self.spec.config.steps
        metrics = {**sampling_metrics(stats), **stats.curriculum, **of_update}
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
        warnings, alarm = self.parts.alarms.check(metrics)
        for warning in warnings.values():
            print(f"WARNING: step {self.done}: {warning}", flush=True)
        if alarm:
            raise Alarm(alarm)
        self.healthy = not warnings

    def evaluation_due(self) -> bool:
        last = self.done == self.spec.config.steps
        return last or due(self.done, self.spec.config.eval.every_steps)

    def evaluate(self, *, whole: bool = False) -> None:
        """Evaluates the policy, on all problems if `whole` or at the start or end."""
        whole = whole or self.base is None or self.done == self.spec.config.steps
        summary = self.interruptible(
            lambda: self.parts.evaluate(self.done, whole=whole)
        )
        self.latest, self.evaluated = summary, self.done
        if self.base is None:
            self.base = summary
        if scalars := scalars_of(summary):
            self.writer.scalars(self.done, scalars)

    def finish(self, end_reason: str) -> dict[str, Any]:
        """Exports the policy if the last update was made; returns the summary."""
        engine = self.parts.engine
        in_a_row, skipped = engine.skipped
        unhealthy = f"last updates not finite: {in_a_row}" if in_a_row else ""
        card = model_card(
            json.loads(config_json(self.spec.config)),
            step=self.done,
            evaluations={"base": self.base or {}, "final": self.latest},
        )
        exported = engine.export(
            str(self.workdir / "hf"), card=card, dtype=self.spec.config.export.dtype
        )
        return {
            "base": self.base,
            "final": self.latest,
            "steps": self.done,
            "ended": end_reason,
            "unhealthy": unhealthy,
            "exported": exported,
            "updates": engine.updates,
            "skipped": skipped,
            "wall_seconds": time.monotonic() - self.started,
        }
