"""The loop: sample, verify, filter, update, publish; `train`, from top to bottom."""

import contextlib
import pathlib
import time
from typing import Any

from rl import build, multihost, peers
from rl.collect import Shortfall, Tally
from rl.compiles import Compiles
from rl.engine import make_hyper
from rl.evaluate import evaluate, headline
from rl.judging import make_judge
from rl.metrics import (
    MetricsWriter,
    Stopwatch,
    console_line,
    duration,
    sampling_metrics,
    update_metrics,
    verifier_metrics,
)
from rl.overlap import lag_metrics
from rl.packing import make_segments, pack, padding_fraction
from rl.plan import Plan, config_json, model_folder
from rl.stopping import Stopped, StopSignals
from rl.verifier import VerifierPool
from rollout.types import SamplingParams, SeedStream

# Streams of seeds that must not meet: one root each.
_SAMPLING, _SHUFFLING, _EVALUATING = 0, 1, 2


def train(plan: Plan, workdir: pathlib.Path, processes: peers.Peers) -> dict[str, Any]:
    """Runs the loop from wherever the workdir's newest checkpoint left it.

    With several processes the leader runs it, and the others `multihost.follow`.

    Returns:
      What summary.json holds.

    Raises:
      Stopped: by a signal, after saving.
      Alarm: the run cannot go on; its last checkpoint stays.
    """
    config = plan.config
    stop, compiles = StopSignals(processes), Compiles()
    model_folder(config, weights=True)  # before the others look for it
    engine = multihost.lead(
        processes,
        lambda: build.make_engine(plan, workdir),
        config=config_json(config),
        embedded=config.rollout.backend == "jax",
    )
    seeds = SeedStream(_root(config.seed, _SAMPLING))
    shuffling = SeedStream(_root(config.seed, _SHUFFLING))
    problems = build.make_curriculum(plan)
    schedule = build.make_schedule(config)
    alarms = build.make_alarms(config)
    pool = VerifierPool(config.reward.workers, config.reward.timeout)
    reward = build.make_reward(config, pool, shuffling)
    collector = build.make_collector(
        plan,
        engine=engine,
        reward=reward,
        seeds=seeds,
        problems=problems,
        check_stop=stop.check,
    )

    def data_state() -> dict[str, Any]:
        return {
            "seeds": seeds.count,
            "shuffling": shuffling.count,
            "problems": problems.state(),
            "collector": collector.state(),
        }

    rollouts = build.make_rollouts(plan, collector, problems, data_state)
    # The engine is closed first: that ends what the other two still wait for.
    with (
        contextlib.closing(rollouts),
        contextlib.closing(pool),
        contextlib.closing(engine),
    ):
        done, base, latest, wall = 0, None, None, 0.0
        if restored := engine.restore():
            done, loop = restored
            seeds.count, shuffling.count = loop["seeds"], loop["shuffling"]
            problems.restore(loop["problems"])
            collector.restore(loop["collector"])
            alarms.restore(loop["alarms"])
            base, latest = loop["base"], loop["latest"]
            wall = loop["wall_seconds"]
            print(f"resuming after step {done}")
        began = time.time() - wall
        writer = MetricsWriter(workdir, keep=done if restored else -1)

        def loop_state() -> dict[str, Any]:
            return {
                **rollouts.state(),
                "alarms": alarms.state(),
                "base": base,
                "latest": latest,
                "wall_seconds": time.time() - began,
            }

        if base is None:
            base = latest = _evaluate(plan, engine, pool, writer, 0)

        ended = ""
        for step in range(done, config.steps):
            before, judged, compiled = loop_state(), pool.counts, compiles.programs
            try:
                stop.check()
                watch = Stopwatch()
                groups, tally = rollouts.take(step)
            except Stopped:
                engine.save(step, before)
                raise
            except Shortfall as shortfall:
                engine.save(step, before)
                ended = str(shortfall)
                break
            watch.lap("sample")
            metrics = sampling_metrics(tally)
            if groups:
                stage = problems.stage_of(step)
                metrics |= _update(plan, engine, schedule, stage, groups, step, watch)
            else:
                print(f"step {step + 1}: too few informative groups, no update")
            rollouts.settle()
            watch.lap("sample")
            engine.publish(step + 1)
            watch.lap("publish")
            metrics |= engine.sampler_metrics() | problems.metrics(step)
            metrics |= _speeds(metrics, watch)
            metrics |= verifier_metrics(judged, pool.counts)
            metrics["timing/compiled_programs"] = compiles.programs - compiled
            left = watch.total * (config.steps - step - 1)
            print(console_line(step + 1, config.steps, metrics, left), flush=True)
            writer.scalars(step + 1, metrics)
            writer.samples(step + 1, _examples(plan, tally))
            for warning in alarms.check(metrics):
                print(f"WARNING: step {step + 1}: {warning}", flush=True)
            last = step + 1 == config.steps
            if last or _due(step + 1, config.eval.every_steps):
                latest = _evaluate(plan, engine, pool, writer, step + 1)
            if last or _due(step + 1, config.checkpoint.every_steps):
                engine.save(step + 1, loop_state())
            done = step + 1

        if ended:
            print(f"ending after step {done}: {ended}", flush=True)
            latest = _evaluate(plan, engine, pool, writer, done)
        engine.export(str(workdir / "hf"), config.export.dtype)
        writer.close()
    return {
        "base": base,
        "final": latest,
        "steps": done,
        "ended": ended,
        "updates": engine.updates,
        "wall_seconds": time.time() - began,
    }


def _update(plan, engine, schedule, stage, groups, step, watch) -> dict[str, float]:
    """Packs the groups into mini-batches and runs the step's updates on them."""
    c = plan.config
    size = c.batch.prompts_per_update
    mini_batches = [
        pack(
            make_segments(
                groups[start : start + size],
                version=step,
                sampler_is_trainer=c.rollout.backend == "jax",
                advantage=c.objective.advantage,
                aggregation=c.objective.aggregation,
                constant=c.rollout.max_response_tokens,
            ),
            row_lengths=tuple(c.batch.row_lengths),
            micro_tokens=c.batch.micro_tokens,
            row_multiple=build.row_multiple(plan),
            share_prompts=c.batch.share_prompts,
        )
        for start in range(0, len(groups), size)
    ]
    watch.lap("pack")
    updates = engine.updates
    scale = (stage.learning_rate or c.schedule.learning_rate) / c.schedule.learning_rate
    hypers = [
        make_hyper(
            learning_rate=scale * schedule(updates + i),
            eps_low=c.objective.eps_low,
            eps_high=stage.eps_high or c.objective.eps_high,
            first=i == 0,
        )
        for i in range(len(mini_batches) * c.batch.ppo_epochs)
    ]
    stats = engine.update(mini_batches, hypers)
    watch.lap("update")
    micro = [batch for batches in mini_batches for batch in batches]
    return update_metrics(stats) | {
        **lag_metrics(groups, step),
        "schedule/learning_rate": float(hypers[-1].learning_rate),
        "schedule/updates": engine.updates,
        "packing/padding": padding_fraction(micro),
        "packing/tokens": float(sum((b.segment_ids != 0).sum() for b in micro)),
    }


def _speeds(metrics, watch: Stopwatch) -> dict[str, float]:
    speeds = {f"seconds/{phase}": s for phase, s in watch.seconds.items()}
    speeds["seconds/step"] = watch.total
    if metrics.get("sampling/seconds"):
        rate = metrics.get("sampling/tokens", 0.0) / metrics["sampling/seconds"]
        speeds["speed/sampling_tokens"] = rate
    if "packing/tokens" in metrics:
        rate = metrics["packing/tokens"] / watch.seconds["update"]
        speeds["speed/update_tokens"] = rate
    return speeds


def _evaluate(plan, engine, pool, writer: MetricsWriter, step: int) -> dict[str, Any]:
    """Held-out accuracy: sampled, and greedy besides. The same seed every time."""
    e = plan.config.eval
    if not plan.held_out:
        return {}
    began = time.perf_counter()
    arguments = dict(
        problems=plan.held_out,
        prompts=[plan.encode(p).tolist() for p in plan.held_out],
        sampler=engine,
        seed=SeedStream(_root(plan.config.seed, _EVALUATING)).next(),
        decode=plan.decode,
        judge=make_judge(pool),
    )
    shared = dict(
        max_tokens=plan.config.rollout.max_response_tokens,
        stop_token_ids=plan.stop_token_ids,
    )
    sampled = SamplingParams(
        n=e.samples, temperature=e.temperature, top_p=e.top_p, **shared
    )
    _, summary = evaluate(params=sampled, **arguments)
    if e.greedy:
        greedy = SamplingParams(temperature=0.0, **shared)
        _, of_greedy = evaluate(params=greedy, **arguments)
        summary["greedy_accuracy"] = of_greedy["accuracy"]
    scalars = {k: v for k, v in summary.items() if isinstance(v, int | float)}
    writer.scalars(step, {f"eval/{k}": v for k, v in scalars.items()})
    print(
        f"evaluation after step {step}: {headline(summary)}"
        f" ({duration(time.perf_counter() - began)})",
        flush=True,
    )
    return summary


def _examples(plan, tally: Tally) -> list[dict[str, Any]]:
    rows = []
    for group in tally.examples[: plan.config.log.samples]:
        completion = group.completions[0]
        rows.append(
            {
                "id": group.problem.id,
                "problem": group.problem.problem,
                "completion": plan.decode(completion.token_ids.tolist()),
                "gold": group.problem.answers[0],
                "correct": bool(group.correct[0]),
                "reward": float(group.rewards[0]),
                "finish_reason": completion.finish_reason,
            }
        )
    return rows


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _root(seed: int, stream: int) -> int:
    return 3 * seed + stream
