"""The loop: sample, verify, filter, update, publish; `train`, from top to bottom."""

import contextlib
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from configs.schema import config_json, take
from rl import build
from rl.alarms import Alarm
from rl.batches.collect import Shortfall
from rl.batches.packing import padding_fraction
from rl.batches.schedule import staleness_metrics
from rl.batches.tally import Tally
from rl.engine import Engine
from rl.evaluate import evaluate, headline
from rl.metrics import (
    EVALUATED,
    MetricsWriter,
    Stopwatch,
    console_line,
    distributions,
    sampling_metrics,
    speed_metrics,
    update_metrics,
    verifier_metrics,
)
from rl.plan import EVALUATION, Plan, due, evaluation_params
from rl.processes import group
from rl.processes.compiles import Compiles
from rl.processes.stopping import Stopped, StopSignals
from rl.progress import WatchedSampler, duration, phase, watch
from rl.reward.rewards import RewardError, Rewards
from rl.types import Group
from rl.workdir.dump import dump_updates
from rl.workdir.examples import example_rows
from rl.workdir.export import model_card
from rl.workdir.tokens import looked_at, token_rows
from rollout.seeds import Stream, run_seed
from rollout.types import SamplerError


def train(
    plan: Plan,
    workdir: pathlib.Path,
    processes: group.Processes,
    stop: StopSignals,
    *,
    accept_changes: bool = False,
) -> dict[str, Any]:
    """Runs the loop from wherever the workdir's newest checkpoint left it.

    With several processes the leader runs it; the others run `joint.follow`.

    Args:
      plan: the run.
      workdir: of the run; locked.
      processes: of the run.
      stop: says when a signal ends it.
      accept_changes: see `rl.workdir.manifest.begin`.

    Returns:
      What summary.json holds.

    Raises:
      ValueError: the workdir holds another run.
      Stopped: by a signal; saved, where there was something to save.
      RewardError: a reward of the user's broke its contract; after saving.
      SamplerError: nobody is left to sample from; after saving.
      Alarm: the run cannot go on; its last checkpoint stays.
    """
    config = plan.config
    compiles = Compiles()
    with (
        build.open_parts(
            plan, workdir, processes, stop.check, accept_changes=accept_changes
        ) as parts,
        take(stop.grace_period, config.checkpoint)(),
        contextlib.ExitStack() as opened,
    ):
        engine, rollouts, rewards = parts.engine, parts.rollouts, parts.rewards
        stop.finish = engine.finish_saving
        done, base, latest, began = 0, None, None, time.time()
        evaluated, ended, healthy = -1, "", True

        def state() -> dict[str, Any]:
            """What a checkpoint holds besides the policy."""
            return {
                "rollouts": rollouts.state(),
                "alarms": parts.alarms.state(),
                "base": base,
                "latest": latest,
                "evaluated": evaluated,
                "wall_seconds": time.time() - began,
            }

        def save(loop: Mapping[str, Any], *, healthy: bool) -> None:
            known = latest if loop["evaluated"] == done else {}
            engine.save(done, loop, healthy=healthy, score=known.get("accuracy"))

        def save_whole(loop: Mapping[str, Any], *, healthy: bool) -> None:
            with stop.saving():
                save(loop, healthy=healthy)
                engine.finish_saving()

        def interruptible(work: Callable[[], Any]) -> Any:
            """Run `work`; if interrupted, checkpoint the state from before it."""
            before = state()
            # No context manager: a signal may come between its end and that of `with`.
            try:
                with stop.interruptible():
                    return work()
            except (Stopped, Shortfall, RewardError, SamplerError) as end:
                if base is not None:
                    save_whole(before, healthy=healthy)
                    if isinstance(end, Stopped):
                        print(f"{end}: saved after step {engine.saved}", flush=True)
                raise

        @contextlib.contextmanager
        def checkpoint_on_error() -> Iterator[None]:
            """Checkpoint the new policy even if publishing it fails."""
            try:
                yield
            except (SamplerError, OSError):
                # Of several processes the others may be in the middle of it. Whether it
                # is healthy the alarms have not said yet.
                if processes.alone:
                    save_whole(state(), healthy=False)
                raise

        def evaluate_now() -> dict[str, Any]:
            summary = interruptible(
                lambda: _evaluate(plan, engine, rewards, stop.check, done)
            )
            _record(summary, writer, done)
            return summary

        with phase("serve", "the base, or the newest checkpoint"):
            restored = engine.restore()
        if restored:
            done, loop = restored
            rollouts.restore(loop["rollouts"])
            parts.alarms.restore(loop["alarms"])
            base, latest = loop["base"], loop["latest"]
            evaluated = loop["evaluated"]
            began -= loop["wall_seconds"]
            print(f"resuming after step {done}", flush=True)
        writer = MetricsWriter(
            workdir,
            keep=done if restored else -1,
            evaluated=evaluated,
            config=plan.changes,
            sinks=plan.sinks,
        )
        # However the run ends: sinks may hold back what they are told until then.
        opened.callback(writer.close)
        if base is None:
            base = latest = evaluate_now()
            evaluated = 0
        elif _evaluation_due(config, done) and evaluated < done:
            # It was saved when a signal broke its evaluation off.
            latest, evaluated = evaluate_now(), done
            if "accuracy" in latest:
                engine.record_score(done, latest["accuracy"])

        while done < config.steps:
            step = done
            judged, compiled = rewards.counts, compiles.programs
            clock = Stopwatch()
            parts.trace.begin(step + 1)
            try:
                with clock.phase("sample"), watch("sample"):
                    groups, tally = interruptible(lambda step=step: rollouts.take(step))
            except Shortfall as end:
                ended = str(end)
                break
            with clock.phase("log"):
                metrics = sampling_metrics(tally) | tally.curriculum
            if groups:
                metrics |= _update(
                    parts, plan, workdir, writer, groups, tally, step, clock
                )
            else:
                print(f"step {step + 1}: too few informative groups, no update")
            with clock.phase("sample"):
                rollouts.settle()
            done = step + 1
            with clock.phase("publish"), checkpoint_on_error():
                engine.publish(done)
            metrics |= engine.sampler_metrics() | speed_metrics(metrics, clock)
            metrics |= verifier_metrics(judged, rewards.counts)
            metrics["timing/compiled_programs"] = compiles.programs - compiled
            left = clock.total * (config.steps - done)
            print(console_line(done, config.steps, metrics, left), flush=True)
            metrics["checkpoint/step"] = engine.saved
            writer.scalars(done, metrics)
            examples = take(example_rows, config.log)(tally, plan.decode)
            writer.samples(done, examples)
            warnings, alarm = parts.alarms.check(metrics)
            for warning in warnings:
                print(f"WARNING: step {done}: {warning}", flush=True)
            if alarm:
                raise Alarm(alarm)
            healthy = not warnings
            last = done == config.steps
            if _evaluation_due(config, done):
                latest, evaluated = evaluate_now(), done
            if last or due(done, every_steps=config.checkpoint.every_steps):
                with stop.saving():
                    save(state(), healthy=healthy)

        if ended:
            print(f"ending after step {done}: {ended}", flush=True)
        # Also of a run that has done more steps than it is now asked for.
        if evaluated < done:
            latest = evaluate_now()
        in_a_row, skipped = engine.skipped
        unhealthy = f"its last {in_a_row} updates were not finite" if in_a_row else ""
        card = model_card(
            json.loads(config_json(config)),
            step=done,
            evaluations={"base": base, "final": latest},
        )
        exported = engine.export(str(workdir / "hf"), card=card, **config.export)
    return {
        "base": base,
        "final": latest,
        "steps": done,
        "ended": ended,
        "unhealthy": unhealthy,
        "exported": exported,
        "updates": engine.updates,
        "skipped": skipped,
        "wall_seconds": time.time() - began,
    }


def _update(
    parts: build.Parts,
    plan: Plan,
    workdir: pathlib.Path,
    writer: MetricsWriter,
    groups: list[Group],
    tally: Tally,
    step: int,
    clock: Stopwatch,
) -> dict[str, float]:
    """Packs the groups into mini-batches and runs the step's updates on them."""
    engine = parts.engine
    with clock.phase("pack"):
        mini_batches = parts.pack(groups, version=step)
        hypers = parts.hypers(
            tally.stage, updates=engine.updates, mini_batches=len(mini_batches)
        )
    # From the first step on, so that what scores them is compiled with the rest.
    looks = take(looked_at, plan.config.log)(step)
    looked = mini_batches[0][0] if looks else None
    with clock.phase("log"):
        before = engine.score(looked, hypers[0]) if looks else None
    with clock.phase("update"), watch("update"):
        stats = engine.update(mini_batches, hypers)
    with clock.phase("log"):
        if any(s["skipped"] for s in stats):
            engine.finish_saving()
            dump_updates(workdir, step, groups, mini_batches, hypers, stats)
        writer.histograms(step + 1, distributions(tally, mini_batches))
        if looks:
            scored = before, engine.score(looked, hypers[0])
            rows = token_rows(groups, looked, *scored, hypers[-1], plan.decode)
            writer.tokens(step + 1, rows)
    micro = [batch for batches in mini_batches for batch in batches]
    tokens = sum((batch.segment_ids != 0).sum() for batch in micro)
    passes = len(hypers) / len(mini_batches)
    return update_metrics(stats) | {
        **staleness_metrics(groups, step),
        "schedule/learning_rate": float(hypers[-1].learning_rate),
        "schedule/updates": engine.updates,
        "packing/padding": padding_fraction(micro),
        "packing/tokens": float(tokens),
        "speed/update_tokens": tokens * passes / clock.seconds["update"],
    }


def _evaluation_due(config: ConfigDict, step: int) -> bool:
    """Whether held-out accuracy is taken after so many steps."""
    return step == config.steps or due(step, every_steps=config.eval.every_steps)


def _evaluate(
    plan: Plan,
    engine: Engine,
    rewards: Rewards,
    check_stop: Callable[[], None],
    step: int,
) -> dict[str, Any]:
    """Held-out accuracy: sampled, and greedy besides. The same seed every time."""
    if not plan.held_out:
        return {}
    began = time.perf_counter()
    arguments = dict(
        problems=plan.held_out,
        prompts=[plan.encode(p).tolist() for p in plan.held_out],
        sampler=WatchedSampler(engine, "evaluate", check_stop),
        seed=run_seed(plan.config.seed, Stream.EVALUATING, 0),
        decode=plan.decode,
        judge=rewards.reward(EVALUATION),
    )
    sampled, greedy = take(evaluation_params, plan.config.eval)(plan.sampling)
    drawn = f"{len(plan.held_out)} problems, {sampled.n} completions of each"
    with phase("evaluate", drawn + (", a greedy one besides" if greedy else "")):
        _, summary = evaluate(params=sampled, **arguments)
        if greedy:
            _, of_greedy = evaluate(params=greedy, **arguments)
            summary["greedy_accuracy"] = of_greedy["accuracy"]
    print(
        f"evaluation after step {step}: {headline(summary)}"
        f" ({duration(time.perf_counter() - began)})",
        flush=True,
    )
    return summary


def _record(summary: Mapping[str, Any], writer: MetricsWriter, step: int) -> None:
    """An evaluation's figures, where there was one."""
    scalars = {k: v for k, v in summary.items() if isinstance(v, int | float)}
    if scalars:
        writer.scalars(step, {EVALUATED + k: v for k, v in scalars.items()})
