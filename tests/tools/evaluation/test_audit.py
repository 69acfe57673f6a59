from rl.evaluate import SampledCompletion
from rl.types import Problem
from tools.evaluation import audit

TEXT = "Ann has 3 red  apples\nand 4 green ones. How many?"  # 11 words


def test_a_problem_is_cut_between_words():
    assert audit.given_and_rest(TEXT, 40) == (
        "Ann has 3 red", "  apples\nand 4 green ones. How many?",
    )  # fmt: skip
    assert audit.given_and_rest("two words", 80) == ("two", " words")
    assert audit.given_and_rest("one", 40) == ("one", "")


def test_word_for_word_however_spaced():
    rest = audit.given_and_rest(TEXT, 60)[1]
    assert audit.completes(" green ones.  How many? She has 7.", rest)
    assert not audit.completes(" red ones. How many?", rest)
    assert not audit.completes(" green ones.", rest)


def test_the_share_that_is_known_by_heart():
    problems = [Problem(id=i, problem=TEXT, answers=("7",)) for i in "abcd"]
    problems.append(Problem(id="e", problem="one", answers=("1",)))  # nothing to cut

    def drawn(percent, knows):
        rest = audit.given_and_rest(TEXT, percent)[1]
        return [
            SampledCompletion(id=i, sample=0, completion=rest if i in knows else " so")
            for i in "abcd"
        ]

    found = audit.memory(problems, {60: drawn(60, "abc"), 40: drawn(40, "a"), 80: []})
    assert list(found) == ["40", "60"]
    assert found["60"]["completed"] == 0.75 and found["60"]["problems"] == 4
    low, high = found["40"]["interval"]
    assert 0 < low < 0.25 < high < 1
