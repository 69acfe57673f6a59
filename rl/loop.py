"""Runs the training loop: sample, verify, filter, update, publish. See `train`."""

import pathlib
from typing import Any

from rl.groups.collect import Shortfall
from rl.groups.packing import pack_groups
from rl.held_out import score_of
from rl.metrics import LEGEND
from rl.processes import group
from rl.processes.stopping import StopSignals
from rl.run import open_run
from rl.run_spec import RunSpec
from rl.update.optimizer import make_hypers


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
    with open_run(spec, workdir, processes, stop, accept_changes=accept_changes) as run:
        engine = run.engine
        if run.base is None:
            run.evaluate()
        elif run.due(c.eval.every_steps) and run.evaluated < run.done:
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
                        lambda: run.collector.collect(run.done)
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
                        extra_groups=run.extra_groups,
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
                run.collector.wait()
            run.done += 1
            with clock.phase("publish"), run.checkpoint_on_error():
                engine.publish(run.done)

            run.end_step(metrics, stats, clock)
            if run.due(c.eval.every_steps):
                run.evaluate()
            if run.due(c.checkpoint.every_steps):
                run.save(run.state(), healthy=run.healthy)

        if end_reason:
            print(f"ending after step {run.done}: {end_reason}", flush=True)
        # Evaluate at the end, also if `steps` was set below the steps already done.
        if run.evaluated < run.done or run.latest.get("part"):
            run.evaluate(whole=True)
        return run.finish(end_reason)
