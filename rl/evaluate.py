"""Evaluates a policy, in training and in `tools.evaluate`.

    drawn = draw(problems, prompts, sampler=..., params=..., seed=..., decode=...)
    scored = score(drawn, problems, judge)
    summary = summarise(scored)

`tools.evaluate` stores the completions, and can score them again after a change of the
verifier.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from rl.groups.stats import is_repetitive
from rl.reward.verifier import Reward
from rl.statistics import avg_at_k, mean_interval, pass_at_k
from rl.types import Problem
from rl.verifier import Verdict
from rollout.types import Completion, FinishReason, Sampler, SamplingParams

Decode = Callable[[Sequence[int]], str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampledCompletion:
    """Holds a completion as text; a field that is not known is None."""

    id: str  # id of the problem
    sample: int  # index among the completions of the problem
    completion: str  # decoded text, without a special stop token
    tokens: int | None = None  # number of tokens, including the stop token
    finish_reason: FinishReason | None = None
    repetitive: bool | None = None  # see `rl.groups.stats.is_repetitive`


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Holds a completion with its problem, verdict, reward and reward components."""

    drawn: SampledCompletion
    problem: Problem
    verdict: Verdict
    reward: float = math.nan
    components: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.drawn.id

    @property
    def correct(self) -> bool:
        return self.verdict.correct is True

    @property
    def answer(self) -> str | None:
        return self.verdict.answer

    @property
    def graded(self) -> bool:
        """Returns whether a reward function, not only the verifier, gave the reward."""
        return bool(self.components) or self.verdict.rule == "reward"


_Completion = TypeVar("_Completion", SampledCompletion, Scored)


def draw(
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    *,
    sampler: Sampler,
    params: SamplingParams,
    seed: int,
    decode: Decode,
    on_drawn: Callable[[SampledCompletion], None] | None = None,
) -> list[SampledCompletion]:
    """Samples `params.n` completions per problem; `on_drawn` gets each as it ends.

    `prompts` are token ids, with the template applied. `decode` converts token ids to
    text, without a special stop token at the end.
    """

    def as_text(problem: int, sample: int, completion: Completion) -> SampledCompletion:
        return SampledCompletion(
            id=problems[problem].id,
            sample=sample,
            completion=decode(completion.token_ids.tolist()),
            tokens=len(completion.token_ids),
            finish_reason=completion.finish_reason,
            repetitive=is_repetitive(completion.token_ids),
        )

    def report(problem: int, sample: int, completion: Completion) -> None:
        if on_drawn is not None:
            on_drawn(as_text(problem, sample, completion))

    groups = sampler.sample(prompts, params, seed=seed, on_finished=report)
    return [
        as_text(problem, sample, completion)
        for problem, group in enumerate(groups)
        for sample, completion in enumerate(group)
    ]


def score(
    drawn: Sequence[SampledCompletion], problems: Iterable[Problem], judge: Reward
) -> list[Scored]:
    """Scores completions in one call of `judge`; returns them ordered by problem."""
    by_id = {problem.id: problem for problem in problems}
    groups = by_problem(drawn)
    scores = judge(
        [[d.completion for d in group] for group in groups.values()],
        [by_id[id] for id in groups],
    )
    return [
        Scored(
            drawn=d,
            problem=by_id[d.id],
            verdict=s.verdict,
            reward=s.reward,
            components=s.components,
        )
        for group, of_group in zip(groups.values(), scores, strict=True)
        for d, s in zip(group, of_group, strict=True)
    ]


def summarise(scored: Sequence[Scored]) -> dict[str, Any]:
    """Computes metrics of scored completions; rates and accuracies lie in [0, 1].

    `accuracy` is avg@k, the mean over problems of the share of correct completions.
    `pass@k` is computed for k = n and all powers of two below n, where n is the
    smallest number of completions of a problem. Intervals are 95% confidence intervals
    (`mean_interval`) over problems or `templates`. Completions without a verdict count
    as wrong. `reward`, `component/NAME` and `tokens_*` use only completions that have
    the value. `repeated` and `truncated` are absent unless known for all.
    """
    groups = by_problem(scored)
    if not groups:
        raise ValueError("nothing to summarise: the list of completions is empty")
    correct = [[s.correct for s in group] for group in groups.values()]
    fewest = min(map(len, correct))
    clusters = templates(groups)
    summary: dict[str, Any] = accuracy_of(correct, clusters) | {
        "samples": fewest,
        "completions": len(scored),
        "no_answer": _rate(s.answer is None for s in scored),
        "unjudged": _rate(s.verdict.correct is None for s in scored),
        "rules": dict(Counter(s.verdict.rule for s in scored).most_common()),
    }
    for k in sorted({2**i for i in range(fewest.bit_length())} | {fewest}):
        solved = pass_at_k(correct, k)
        summary[f"pass@{k}"] = float(solved.mean())
        summary[f"pass@{k}_interval"] = mean_interval(solved, clusters)
    if any(s.graded for s in scored):
        summary |= _mean_grades(scored)
    if all(s.drawn.repetitive is not None for s in scored):
        summary["repeated"] = _rate(bool(s.drawn.repetitive) for s in scored)
    tokens = [s.drawn.tokens for s in scored if s.drawn.tokens is not None]
    if tokens:
        summary["tokens_mean"] = float(np.mean(tokens))
        summary["tokens_p50"] = float(np.quantile(tokens, 0.5))
        summary["tokens_p95"] = float(np.quantile(tokens, 0.95))
        summary["tokens_max"] = max(tokens)
    if all(s.drawn.finish_reason is not None for s in scored):
        summary["truncated"] = _rate(s.drawn.finish_reason == "length" for s in scored)
    return summary


def _mean_grades(scored: Sequence[Scored]) -> dict[str, float]:
    parts = {
        f"component/{name}": [s.components.get(name, math.nan) for s in scored]
        for name in dict.fromkeys(name for s in scored for name in s.components)
    }
    parts["reward"] = [s.reward for s in scored]
    return {
        name: float(np.nanmean(values))
        for name, values in parts.items()
        if not np.isnan(values).all()
    }


def headline(summary: Mapping[str, Any]) -> str:
    """Formats the main metrics of a summary, and of the summaries in its "sets"."""
    parts = [f"avg@{summary['samples']} {summary['accuracy']:.1%}"]
    # Compare k as numbers: in a summary from a checkpoint, keys are sorted as text.
    most = max(int(key[5:]) for key in summary if re.fullmatch(r"pass@\d+", key))
    parts.append(f"pass@{most} {summary[f'pass@{most}']:.1%}")
    if "greedy_accuracy" in summary:
        parts.append(f"greedy {summary['greedy_accuracy']:.1%}")
    line = ", ".join(parts) + f" on {summary['problems']} problems"
    if left_out := summary.get("left_out"):
        line += f" (incomplete: {left_out} left out)"
    others = summary.get("sets", {}).items()
    return "; ".join([line, *(f"{name} {headline(of_set)}" for name, of_set in others)])


def accuracy_of(
    correct: Sequence[Sequence[bool]], clusters: Sequence[str] | None = None
) -> dict[str, Any]:
    """Returns avg@k with its 95% interval (`mean_interval`), and the problem count."""
    scores = avg_at_k(correct)
    return {
        "accuracy": float(scores.mean()),
        "accuracy_interval": mean_interval(scores, clusters),
        "problems": len(scores),
    }


def breakdown(
    scored: Sequence[Scored], label: Callable[[Problem], Any]
) -> dict[str, dict[str, Any]]:
    """Computes `accuracy_of` for each label; leaves out problems with label None."""
    parts: dict[Any, dict[str, list[Scored]]] = {}
    for id, group in by_problem(scored).items():
        if (found := label(group[0].problem)) is not None:
            parts.setdefault(found, {})[id] = group
    return {
        str(found): accuracy_of(
            [[s.correct for s in group] for group in groups.values()], templates(groups)
        )
        for found, groups in sorted(parts.items(), key=lambda part: part[0])
    }


def templates(groups: Mapping[str, Sequence[Scored]]) -> list[str] | None:
    """Returns `meta["template"]` of each problem; None if a problem lacks it."""
    found = [group[0].problem.meta.get("template") for group in groups.values()]
    return None if None in found else [*map(str, found)]


def by_problem(completions: Iterable[_Completion]) -> dict[str, list[_Completion]]:
    """Groups completions by problem id, in the order in which ids first appear."""
    groups: dict[str, list[_Completion]] = {}
    for one in completions:
        groups.setdefault(one.id, []).append(one)
    return groups


def _rate(flags: Iterable[bool]) -> float:
    return float(np.mean(list(flags)))
