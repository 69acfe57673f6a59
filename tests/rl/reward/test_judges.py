"""Judges other than the verifier: what each accepts, which verdicts are flipped."""

import pytest

from rl.reward import judges
from rl.types import Problem

HALF = Problem(id="h", problem="1/4+1/4", answers=("1/2", "0.50"))
SECONDS = Problem(id="s", problem="How long?", answers=("3",), meta={"unit": "s"})


def test_exact_match_wants_every_letter():
    said = ["\\boxed{1/2}", "so \\boxed{0.50}", "\\boxed{0.5}", "1/2", "\\boxed{ 1/2 }"]
    assert [judges.exact_match(text, HALF) for text in said] == [1, 1, -1, -1, 1]


def test_math_verify_knows_that_numbers_are_equal():
    pytest.importorskip("math_verify")
    said = ["\\boxed{0.5}", "\\boxed{\\frac{2}{4}}", "\\boxed{0.6}", "none"]
    assert [judges.math_verify(text, HALF) for text in said] == [1, 1, -1, -1]


def test_a_share_of_verdicts_is_turned_round_and_always_the_same():
    right = [f"{i}: \\boxed{{0.5}}" for i in range(500)]
    wrong = [f"{i}: \\boxed{{0.6}}" for i in range(500)]
    for texts, meant in ((right, 1.0), (wrong, -1.0)):
        rewards = [judges.flipped(text, HALF, share=0.1)["reward"] for text in texts]
        assert set(rewards) == {1.0, -1.0}
        # 50 are meant, with a standard deviation of 7.
        assert 30 <= rewards.count(-meant) <= 70
        assert rewards == [judges.flipped_10(text, HALF)["reward"] for text in texts]
        # A smaller share's mistakes are among a larger one's.
        few = [judges.flipped(text, HALF, share=0.03)["reward"] for text in texts]
        assert all(a == b for a, b in zip(few, rewards, strict=True) if a == -meant)
        assert 5 <= few.count(-meant) <= 27  # 15, and 4
    other = Problem(id="other", problem="1/4+1/4", answers=("1/2",))
    first, second = ([judges.flipped_10(t, p) for t in right] for p in (HALF, other))
    assert first != second


def test_a_systematic_mistake_is_made_of_all_completions_of_a_problem():
    problems = [Problem(id=str(i), problem="1+1", answers=("2",)) for i in range(400)]
    texts = ["\\boxed{2}", "so \\boxed{2}"]
    judge = judges.flipped_10_problems
    rewards = [[judge(text, p)["reward"] for text in texts] for p in problems]
    assert all(len(set(of_problem)) == 1 for of_problem in rewards)
    # 40 are meant, with a standard deviation of 6.
    assert 22 <= sum(of_problem[0] == -1 for of_problem in rewards) <= 58


def test_the_form_alone_is_a_box_with_anything_in_it():
    said = ["\\boxed{7}", "\\boxed{1/2}", "1/2", "\\boxed{"]
    assert [judges.boxed(text, HALF) for text in said] == [1, 1, -1, -1]


def test_what_the_verifier_honours_or_cannot_read_stays_so():
    assert judges.flipped("\\boxed{3\\text{ s}}", SECONDS, share=0)["reward"] == 1
    assert judges.flipped("\\boxed{3\\text{ m}}", SECONDS, share=0)["reward"] == -1
    unreadable = Problem(id="u", problem="?", answers=("\\frac{",))
    assert judges.flipped("\\boxed{1}", unreadable, share=1)["reward"] is None
