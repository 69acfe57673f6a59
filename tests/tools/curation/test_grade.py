"""Grades: written as problems end, resumed where they stopped, turned into rows."""

import dataclasses

import numpy as np
import pytest

from rl.reward.score import Score
from rl.types import Problem
from rl.verifier import Verdict
from rollout.types import Completion
from tools.curation.grade import Grade, grade_missing, graded_rows, read_grades
from tools.evaluation.run import Conditions

PROBLEMS = [Problem(id=f"p{i}", problem=f"{i}?", answers=(str(i),)) for i in range(7)]
CONDITIONS = Conditions(
    template="none", samples=4, temperature=1.0, top_p=1.0, max_tokens=8, context=64,
    seed=3, chunk=12,
)  # fmt: skip


@dataclasses.dataclass
class Coins:
    """A sampler of the protocol whose completions are right with a known chance."""

    fail_after: int | None = None
    calls: int = 0

    def sample(self, prompts, params, *, seed, on_finished=None):
        self.calls += 1
        groups = []
        for p, prompt in enumerate(prompts):
            rng = np.random.default_rng([seed, p])
            group = []
            for s in range(params.n):
                right = rng.random() < 0.1 * prompt[0]
                answer = prompt[0] if right else 99
                completion = Completion(
                    token_ids=np.array([answer, 0], np.int32),
                    sampler_logprobs=np.zeros(2, np.float32),
                    finish_reason="stop",
                    versions=np.zeros(2, np.int32),
                )
                group.append(completion)
                if self.fail_after is not None:
                    self.fail_after -= 1
                    if self.fail_after < 0:
                        raise KeyboardInterrupt
                on_finished(p, s, completion)
            groups.append(group)
        return groups


def _verdict(right, text):
    return Verdict(right, text, "text" if right else "different")


def judge(texts, problems):
    return [
        Score.of(_verdict(text == p.answers[0], text))
        for text, p in zip(texts, problems, strict=True)
    ]


def grade(path, sampler, problems=PROBLEMS):
    grade_missing(
        path, problems, [[i] for i in range(len(problems))], conditions=CONDITIONS,
        stop_token_ids=(0,), sampler=sampler, decode=lambda ids: str(ids[0]),
        judge=judge,
    )  # fmt: skip


def test_every_problem_once_and_a_finished_file_draws_nothing(tmp_path):
    path = tmp_path / "grades.jsonl"
    sampler = Coins()
    grade(path, sampler)
    grades = list(read_grades(path))
    assert [g.id for g in grades] == [p.id for p in PROBLEMS]
    assert all(g.samples == 4 and g.tokens == 8 for g in grades)
    # chunks of 12 completions hold 3 problems of 4
    assert sampler.calls == 3
    grade(path, sampler)
    assert sampler.calls == 3


@pytest.mark.failure(30)
@pytest.mark.parametrize("stop", [0, 5, 9, 13, 27])
def test_stopped_anywhere_and_resumed_gives_the_same_grades(tmp_path, stop):
    grade(tmp_path / "whole.jsonl", Coins())
    path = tmp_path / "stopped.jsonl"
    with pytest.raises(KeyboardInterrupt):
        grade(path, Coins(fail_after=stop))
    assert sum(1 for _ in read_grades(path)) == stop // 4
    with path.open("a") as file:
        file.write('{"id": "p6", "samp')
    grade(path, Coins())
    whole = sorted((tmp_path / "whole.jsonl").read_text().splitlines())
    assert sorted(path.read_text().splitlines()) == whole


def test_a_malformed_grade_is_named(tmp_path):
    path = tmp_path / "grades.jsonl"
    path.write_text('{"id": "p0"}\n')
    with pytest.raises(ValueError, match=r"grades.jsonl:1: not a grade"):
        list(read_grades(path))


def test_rates_and_intervals():
    made = Grade(id="a", samples=16, correct=4, truncated=0, tokens=1)
    assert made.solve_rate == 0.25
    # Wilson's interval of 4 of 16, from its formula
    assert made.interval() == pytest.approx((0.1018, 0.4950), abs=1e-4)
    never = Grade(id="a", samples=16, correct=0, truncated=0, tokens=1)
    assert never.interval()[0] == pytest.approx(0, abs=1e-12)
    assert never.interval()[1] == pytest.approx(0.1936, abs=1e-4)


def test_intervals_cover_the_true_rate():
    rng = np.random.default_rng(0)
    rates = rng.uniform(0, 1, 2000)
    counts = rng.binomial(16, rates)
    covered = [
        low <= rate <= high
        for rate, count in zip(rates, counts, strict=True)
        for low, high in [
            Grade(
                id="", samples=16, correct=int(count), truncated=0, tokens=0
            ).interval()
        ]
    ]
    assert np.mean(covered) > 0.93


def test_rows_get_rates_and_levels():
    rows = [{"id": f"p{i}", "level": 9, "level_source": "old"} for i in range(5)]
    grades = {
        f"p{i}": Grade(id=f"p{i}", samples=4, correct=i, truncated=0, tokens=1)
        for i in range(5)
    }
    new = graded_rows(rows, grades, levels="percentile", level_source="grade:m")
    assert [r["level"] for r in new] == [5, 4, 3, 2, 1]
    assert {r["level_source"] for r in new} == {"grade:m"}
    assert new[1]["solve_rate"] == 0.25 and new[1]["graded"]["correct"] == 1
    kept = graded_rows(rows, {}, levels="keep", level_source="grade:m")
    assert kept == rows and "solve_rate" not in rows[0]
