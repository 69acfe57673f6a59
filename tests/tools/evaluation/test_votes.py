from rl.reward.verifier import verifier_reward
from rl.verifier import VerifierPool
from tests.rl.examples import make_problem, make_scored
from tools.evaluation.votes import answer_classes, maj_at_k


def test_majority_shares_a_tie_and_ignores_silence():
    votes = [["a", None, "a", None, None, "b"], ["a", "b"], [None], ["a", "a", "b"]]
    correct = [[True, False, True, False, False, False]]
    correct += [[True, False], [False], [False, False, True]]
    # "First come" would give 1 for the tie in the second row.
    assert maj_at_k(votes, correct).tolist() == [1.0, 0.5, 0.0, 0.0]


def test_answers_fall_into_classes_of_equal_value():
    answers = ["0.5", "7", "\\frac{1}{2}", None, "1/2", "7.0"]
    rows = make_scored(make_problem(0), answers)
    rows += make_scored(make_problem(1), ["0.5", None])
    rows += make_scored(make_problem(2), [None])
    with VerifierPool(workers=1) as pool:
        classes = answer_classes(rows, verifier_reward(pool.judge))
    half, seven = classes["p0"][0], classes["p0"][1]
    # By text alone there would be five classes, each with one vote.
    assert classes["p0"] == [half, seven, half, None, half, seven]
    assert half != seven
    assert classes["p1"][1] is None and classes["p2"] == [None]
