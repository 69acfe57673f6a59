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


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Evaluates the policy on the held-out sets of a run.

    Attributes:
      spec: the checked run.
      sampler: samples from the policy.
      judge: computes the rewards of held-out completions.
    """

    spec: RunSpec
    sampler: Sampler
    judge: Reward

    def measure(self, step: int, *, whole: bool) -> dict[str, Any]:
        """Evaluates the held-out sets of the run and prints the result.

        Args:
          step: number of steps done.
          whole: evaluate all problems instead of the first `eval.problems` of each set.

        Returns:
          The summary of the first set, with those of other sets under "sets"; `{}` if
          the run has no held-out set.
        """
        if not self.spec.held_out:
            return {}
        started = time.perf_counter()
        first, *others = self.spec.held_out
        summary = self._measure_set(first, whole)
        if others:
            sets = {of_set.name: self._measure_set(of_set, whole) for of_set in others}
            summary["sets"] = sets
        print(
            f"evaluation after step {step}: {headline(summary)}"
            f" ({duration(time.perf_counter() - started)})",
            flush=True,
        )
        return summary

    def _measure_set(self, held_out: ProblemSet, whole: bool) -> dict[str, Any]:
        """Evaluates one set, with the same seed each time."""
        spec, e = self.spec, self.spec.config.eval
        every = held_out.problems
        of_curve = every[: e.problems] if e.problems else every
        problems = every if whole else of_curve
        sampled = dataclasses.replace(
            spec.sampling, n=e.samples, temperature=e.temperature
        )
        greedy = dataclasses.replace(spec.sampling, n=1, temperature=0.0)
        evaluated = functools.partial(
            evaluate,
            problems=problems,
            curve=of_curve,
            prompts=[spec.prompt_of(p).tolist() for p in problems],
            sampler=self.sampler,
            seed=run_seed(spec.config.seed, Stream.EVALUATING, 0),
            decode=spec.decode,
            judge=self.judge,
        )
        text = (
            f"{held_out.name}: {len(problems)} problems, {sampled.n} completions each"
        )
        with phase("evaluate", text + (", and a greedy one" if e.greedy else "")):
            _, summary = evaluated(params=sampled)
            if e.greedy:
                _, of_greedy = evaluated(params=greedy)
                for part in {"curve"} & summary.keys():
                    summary[part]["greedy_accuracy"] = of_greedy[part]["accuracy"]
                summary["greedy_accuracy"] = of_greedy["accuracy"]
        if held_out.left_out:
            summary["left_out"] = held_out.left_out
        if len(problems) < len(every):
            summary["part"] = True
        return summary


def score_of(summary: Mapping[str, Any]) -> float | None:
    """Returns the first set's accuracy on `eval.problems` problems (0: all) or None."""
    return summary.get("curve", summary).get("accuracy")


def scalars_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Returns each set's scalars on its first `eval.problems` problems (0: all)."""
    sets = {f"{name}/": of_set for name, of_set in summary.get("sets", {}).items()}
    return {
        f"{EVALUATED}{prefix}{key}": value
        for prefix, of_set in {"": summary, **sets}.items()
        for key, value in of_set.get("curve", of_set).items()
        if isinstance(value, int | float) and key != "part"
    }
