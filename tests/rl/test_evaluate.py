import dataclasses
import json

import numpy as np
import pytest

from configs.base import RunConfig
from rl.evaluate import SampledCompletion, Scored, draw, headline, score, summarise
from rl.groups.curriculum import Draw
from rl.groups.stats import RolloutStats
from rl.reward.verifier import Score
from rl.types import Problem
from rl.verifier import Verdict
from rollout.types import Completion, SamplingParams
from tests.rl.examples import make_group, make_problem, of_each
from tests.rl.replay import Replay, decode, encode

PROBLEMS = [
    Problem(id="p0", problem="1+1", answers=("2", "two")),
    Problem(id="p1", problem="2+2", answers=("4",)),
]
TEXTS = {"1+1": ["=2", "=two", "=3", "well, hmm"], "2+2": ["=5", "=2", "=7", "="]}


def judge(texts, problems):
    scores = []
    for text, problem in zip(texts, problems, strict=True):
        _, sign, answer = text.partition("=")
        right = answer in problem.answers
        rule = "text" if right else "different" if sign else "no_answer"
        scores.append(Score.of(Verdict(right, answer if sign else None, rule)))
    return scores


def draw_texts(n, on_drawn=None):
    sampler = Replay(lambda prompt, i, j, seed: TEXTS[prompt][j])
    params = SamplingParams(n=n, max_tokens=8, stop_token_ids=(0,))
    how = dict(sampler=sampler, params=params, seed=0, decode=decode)
    prompts = [encode(p.problem) for p in PROBLEMS]
    return draw(PROBLEMS, prompts, **how, on_drawn=on_drawn)


def run(n):
    scored = score(draw_texts(n), PROBLEMS, of_each(judge))
    return scored, summarise(scored)


def test_figures_of_known_completions():
    scored, summary = run(4)
    of_each = [(s.drawn.id, s.drawn.sample) for s in scored]
    assert of_each == [(p, sample) for p in ("p0", "p1") for sample in range(4)]
    # "2", of p1's second, is the first problem's answer and wrong for the second.
    assert [s.correct for s in scored] == [True] * 2 + [False] * 6
    assert summary["accuracy"] == 0.25
    low, high = summary["accuracy_interval"]
    assert low < 0.05 and high > 0.9  # two problems say little
    assert summary["pass@1"] == 0.25
    assert summary["pass@2"] == pytest.approx((1 - 1 / 6) / 2)
    assert summary["pass@4"] == 0.5
    assert summary["no_answer"] == summary["truncated"] == 1 / 8
    assert summary["problems"] == 2 and summary["completions"] == 8
    assert summary["tokens_max"] == 8
    assert summary["tokens_mean"] == (2 + 4 + 2 + 8 + 2 + 2 + 2 + 1) / 8


def test_pass_at_k_of_three_samples():
    _, summary = run(3)
    assert {"pass@1", "pass@2", "pass@3", "pass@3_interval"} < summary.keys()
    assert "pass@4" not in summary


def test_greedy_has_wilsons_interval_and_no_pass_at_2():
    _, summary = run(1)
    assert summary["accuracy"] == 0.5
    # Wilson of 1 in 2; a bootstrap of two problems would say (0, 1).
    assert summary["accuracy_interval"] == pytest.approx((0.0945, 0.9055), abs=1e-4)
    assert "pass@2" not in summary


def test_draw_reports_each_completion_once_as_it_ends():
    told = []
    drawn = draw_texts(2, told.append)
    assert told == drawn[::-1] and len(told) == 4


def scored_x(verdict):
    drawn = SampledCompletion(id="a", sample=0, completion="x")
    return Scored(drawn=drawn, problem=PROBLEMS[0], verdict=verdict)


def test_kept_texts_without_lengths_claim_none():
    summary = summarise([scored_x(Verdict(False, None, "no_answer"))])
    assert "truncated" not in summary and "tokens_mean" not in summary
    with pytest.raises(ValueError, match="nothing to summarise"):
        summarise([])


def test_verdicts_are_counted_by_the_rule_that_decided():
    verdicts = [Verdict(True, "1", "algebra")] * 2
    verdicts += [Verdict(False, "x=1", "echo"), Verdict(None, "1", "lost")]
    summary = summarise(list(map(scored_x, verdicts)))
    assert summary["rules"] == {"algebra": 2, "echo": 1, "lost": 1}
    # A score counts what could not be judged as wrong, and says how much that is.
    assert summary["unjudged"] == 0.25 and summary["accuracy"] == 0.5


@pytest.mark.failure(72)
def test_one_definition_of_repetitive_serves_training_and_evaluation():
    """A loop at the end counts, however long the text before it is."""
    tokens = np.array([*range(1500), *[7, 8, 9, 10] * 130], np.int32)
    zeros, versions = np.zeros(len(tokens), np.float32), np.zeros(len(tokens), np.int32)
    plain = Completion(tokens[:1500], zeros[:1500], "stop", versions[:1500])
    loop = Completion(tokens, zeros, "length", versions)

    class Sampler:
        def sample(self, prompts, params, *, seed, on_finished):
            return [[plain, loop]]

    problem = make_problem()
    drawn = draw(
        [problem], [[1]], sampler=Sampler(),
        params=SamplingParams(n=2, max_tokens=4000, stop_token_ids=(0,)), seed=0,
        decode=lambda ids: "",
    )  # fmt: skip
    scored = score(drawn, [problem], of_each(judge))
    summary = summarise(scored)
    assert [s.drawn.repetitive for s in scored] == [False, True]
    assert summary["repeated"] == 0.5 and summary["truncated"] == 0.5
    stats = RolloutStats(RunConfig())
    group = make_group([False, False])
    group = dataclasses.replace(group, completions=(plain, loop))
    stats.add(Draw(problem, 0, 1.0, 0.5), group, size=2)
    assert stats.metrics()["sampling/repeated"] == 0.5


def test_a_line_tells_the_same_of_what_a_checkpoint_has_kept():
    passed = {f"pass@{k}": k / 100 for k in (1, 2, 4, 8, 16)}
    summary = {"samples": 16, "accuracy": 0.37, **passed, "problems": 512}
    kept = json.loads(json.dumps(summary, sort_keys=True))
    assert list(kept)[-3:] == ["pass@8", "problems", "samples"]
    told = "avg@16 37.0%, pass@16 16.0% on 512 problems"
    assert headline(summary) == headline(kept) == told
