from rl.evaluate import SampledCompletion, Scored
from rl.verifier import Verdict, VerifierPool
from tools.evaluation.votes import answer_classes, maj_at_k


def test_majority_shares_a_tie_and_ignores_silence():
    votes = [["a", None, "a", None, None, "b"], ["a", "b"], [None], ["a", "a", "b"]]
    correct = [[True, False, True, False, False, False]]
    correct += [[True, False], [False], [False, False, True]]
    # "First come" would give 1 for the tie in the second row.
    assert maj_at_k(votes, correct).tolist() == [1.0, 0.5, 0.0, 0.0]


def test_answers_fall_into_classes_of_equal_value():
    def scored(id, *answers):
        return [
            Scored(
                drawn=SampledCompletion(id=id, sample=i, completion=""),
                verdict=Verdict(False, answer, "different"),
            )
            for i, answer in enumerate(answers)
        ]

    rows = scored("a", "0.5", "7", "\\frac{1}{2}", None, "1/2", "7.0")
    rows += scored("b", "0.5", None) + scored("c", None)
    with VerifierPool(workers=1) as pool:
        classes = answer_classes(rows, pool)
    half, seven = classes["a"][0], classes["a"][1]
    # By text alone there would be five classes, each with one vote.
    assert classes["a"] == [half, seven, half, None, half, seven]
    assert half != seven
    assert classes["b"][1] is None and classes["c"] == [None]
