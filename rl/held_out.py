"""Evaluates the policy on held-out problems during a run."""

import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import Any

from rl.evaluate import evaluate, headline
from rl.metrics import EVALUATED
from rl.progress import duration, phase
from rl.reward.verifier import Reward
from rl.run_spec import ProblemSet, RunSpec
from rollout.seeds import Stream, run_seed
from rollout.types import Sampler


def evaluate_sets(
    spec: RunSpec, step: int, *, whole: bool, sampler: Sampler, judge: Reward
) -> dict[str, Any]:
    """Evaluates the held-out sets of a run after `step` steps and prints the result.

    Uses the first `eval.problems` problems of each set (0: all), or all if `whole`.
    Returns the summary of the first set; the key "sets" has the summaries of the other
    sets by name. Returns `{}` if there are no sets.
    """
    if not spec.held_out:
        return {}
    started = time.perf_counter()
    first, *others = [
        (of_set.name, _evaluate_set(spec, of_set, whole, sampler, judge))
        for of_set in spec.held_out
    ]
    summary = first[1] | ({"sets": dict(others)} if others else {})
    print(
        f"evaluation after step {step}: {headline(summary)}"
        f" ({duration(time.perf_counter() - started)})",
        flush=True,
    )
    return summary


def _evaluate_set(
    spec: RunSpec, held_out: ProblemSet, whole: bool, sampler: Sampler, judge: Reward
) -> dict[str, Any]:
    e, every = spec.config.eval, held_out.problems
    of_curve = every[: e.problems] if e.problems else every
    problems = every if whole else of_curve
    sampled = dataclasses.replace(spec.sampling, n=e.samples, temperature=e.temperature)
    evaluated = functools.partial(
        evaluate,
        problems=problems,
        curve=of_curve,
        prompts=[spec.prompt_of(p).tolist() for p in problems],
        sampler=sampler,
        seed=run_seed(spec.config.seed, Stream.EVALUATING, 0),
        decode=spec.decode,
        judge=judge,
    )
    text = f"{held_out.name}: {len(problems)} problems, {sampled.n} completions each"
    with phase("evaluate", text + (", and a greedy one" if e.greedy else "")):
        _, summary = evaluated(params=sampled)
        if e.greedy:
            greedy = dataclasses.replace(spec.sampling, n=1, temperature=0.0)
            _, of_greedy = evaluated(params=greedy)
            if "curve" in summary:
                summary["curve"]["greedy_accuracy"] = of_greedy["curve"]["accuracy"]
            summary["greedy_accuracy"] = of_greedy["accuracy"]
    if held_out.left_out:
        summary["left_out"] = held_out.left_out
    if len(problems) < len(every):
        summary["part"] = True
    return summary


def score_of(summary: Mapping[str, Any]) -> float | None:
    """Returns the accuracy on the first `eval.problems` problems of the first set.

    `summary` is a result of `evaluate_sets`. Returns None if it is empty.
    """
    return summary.get("curve", summary).get("accuracy")


def scalars_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Returns metrics of each set's first `eval.problems` problems, by metric name."""
    sets = {f"{name}/": of_set for name, of_set in summary.get("sets", {}).items()}
    return {
        f"{EVALUATED}{prefix}{key}": value
        for prefix, of_set in {"": summary, **sets}.items()
        for key, value in of_set.get("curve", of_set).items()
        if isinstance(value, int | float) and key != "part"
    }
