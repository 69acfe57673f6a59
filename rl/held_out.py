"""Evaluates the policy on held-out problems during a run."""

import time
from collections.abc import Mapping
from typing import Any

from rl.evaluate import Scored, breakdown, draw, headline, score, summarise
from rl.metrics import EVALUATED
from rl.progress import duration, phase
from rl.reward.verifier import Reward
from rl.run_spec import ProblemSet, RunSpec
from rollout.seeds import Stream, run_seed
from rollout.types import Sampler, SamplingParams


def evaluate_sets(
    spec: RunSpec, step: int, *, whole: bool, sampler: Sampler, judge: Reward
) -> dict[str, Any]:
    """Evaluates the held-out sets of a run after `step` steps and prints the result.

    Uses the first `eval.problems` problems of each set (0: all), or all if `whole`.
    Returns the summary of the first set, with the key "part" if problems are left out;
    the key "sets" has the summaries of the other sets by name. Returns `{}` if there
    are no sets.
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
    )
    return summary


def _evaluate_set(
    spec: RunSpec, held_out: ProblemSet, whole: bool, sampler: Sampler, judge: Reward
) -> dict[str, Any]:
    e, every = spec.config.eval, held_out.problems
    of_curve = every[: e.problems] if e.problems else every
    problems = every if whole else of_curve
    prompts = [ids.tolist() for ids in held_out.prompts[: len(problems)]]
    seed = run_seed(spec.config.seed, Stream.EVALUATING, 0)

    def evaluate(n: int, temperature: float) -> list[Scored]:
        params = SamplingParams(
            n=n,
            max_tokens=spec.config.rollout.max_response_tokens,
            temperature=temperature,
            stop_token_ids=spec.stop_token_ids,
        )
        drawn = draw(
            problems,
            prompts,
            sampler=sampler,
            params=params,
            seed=seed,
            decode=spec.decode,
        )
        return score(drawn, problems, judge)

    text = f"{held_out.name}: {len(problems)} problems, {e.samples} completions each"
    with phase("evaluate", text + (", and a greedy one" if e.greedy else "")):
        scored = evaluate(e.samples, e.temperature)
        greedy = evaluate(1, 0.0) if e.greedy else []
    summary = _summarise(scored, greedy)
    summary["by_source"] = breakdown(scored, lambda problem: problem.source or None)
    summary["by_level"] = breakdown(scored, lambda problem: problem.level)
    if len(of_curve) < len(problems):
        ids = {problem.id for problem in of_curve}
        summary["curve"] = _summarise(
            [s for s in scored if s.id in ids], [s for s in greedy if s.id in ids]
        )
    if held_out.left_out:
        summary["left_out"] = held_out.left_out
    if len(problems) < len(every):
        summary["part"] = True
    return summary


def _summarise(scored: list[Scored], greedy: list[Scored]) -> dict[str, Any]:
    of_greedy = {"greedy_accuracy": summarise(greedy)["accuracy"]} if greedy else {}
    return summarise(scored) | of_greedy


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
