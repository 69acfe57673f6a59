"""A benchmark with other numbers: exact where it is made, and paired with its own."""

import re
from fractions import Fraction

import numpy as np
import pytest

from rl.files import replace_rows
from rl.problems.reading import read_problems
from rl.types import Problem
from tools.evaluation.benchmarks import load_benchmark
from tools.evaluation.perturbed import perturbed_problems


def problem(text, solution, answer, id="a"):
    return Problem(id=id, problem=text, answers=(answer,), meta={"solution": solution})


ASKED = "Ann has $40. A pen costs $1.50 and she buys 6 of them. How much is left?"
SPENT = problem(ASKED, "6*1.50=<<6*1.50=9>>9 dollars, 40-9=<<40-9=31>>31", "31")


def test_the_answer_follows_the_numbers():
    found = set()
    for day in range(1, 29):
        (made,) = perturbed_problems([SPENT], f"2026-11-{day:02}")
        told = re.fullmatch(
            r"Ann has \$(\d+)\. A pen costs \$(\d\.\d\d) and she buys (\d+) of them\."
            r" How much is left\?",
            made.problem,
        )
        has, cost, count = map(Fraction, told.groups())
        assert has - cost * count == int(made.answers[0]) > 0
        assert (has, cost, count) != (40, Fraction("1.5"), 6) and count >= 2
        assert made.id == "a" and made.meta == {"from": SPENT.problem}
        found.add(made.problem)
    assert len(found) > 20
    once, again = (perturbed_problems([SPENT], "2026-11-22") for _ in range(2))
    assert once == again


@pytest.mark.parametrize(
    ("text", "solution", "answer"),
    [
        # "half" is a 2 as the bolts are: 4 bolts would become 4/4 + 4.
        ("A robe takes 2 bolts of blue and half that much white. How many bolts?",
         "2/2=<<2/2=1>>1, 2+1=<<2+1=3>>3", "3"),
        # Her and 4 friends are the 5, which nothing says.
        ("Maria invited 4 friends. Her mom gave everybody 3 balloons. How many?",
         "There are 5: 5*3=<<5*3=15>>15", "15"),
        # Sunday and Wednesday are the other 2.
        ("He sells 9 cars a day but on Sunday and Wednesday, for 2 weeks. How many?",
         "7-2=<<7-2=5>>5, 9*5=<<9*5=45>>45, 45*2=<<45*2=90>>90", "90"),
        # 4 is a result, and what "four" means: 64 of 3, 24 and 32 would be wrong.
        ("Al has four times as many as Bo, who has a third of Cy's 12. How many?",
         "12/3=<<12/3=4>>4, 4*4=<<4*4=16>>16", "16"),
        # 6 is a number of the text and a result.
        ("Bo has 6 red hats and 8 blue ones, 2 of which he loses. How many blue more?",
         "8-2=<<8-2=6>>6, 6-6=<<6-6=0>>0", "0"),
        # Nothing is counted by 30.
        ("At 30 degrees Al sells 7 cones at $3. What does he take?",
         "7*3=<<7*3=21>>21", "21"),
        # The chain ends at another number than the answer.
        ("Al sells 7 cones at $3. What does he take?", "7*3=<<7*3=21>>21", "22"),
        ("Al sells 7 cones at $3. What does he take?", "7 times 3 is 21.", "21"),
        # 0 has neither half nor double.
        ("He has 0 pens, buys 7 and then 5 more. How many?",
         "0+7+5=<<0+7+5=12>>12", "12"),
        ("It is 7:30 and he sleeps 3 hours. When?", "7+3=<<7+3=10>>10", "10"),
    ],
)  # fmt: skip
def test_what_is_not_exact_is_left_out(text, solution, answer):
    made = perturbed_problems([problem(text, solution, answer, "b"), SPENT], "2026-1-1")
    assert [p.id for p in made] == ["a"]


def test_constants_that_words_mean_stay():
    asked = "Bo eats 9 plums a day. How many does he eat in 3 weeks?"
    of_words = problem(asked, "9*7=<<9*7=63>>63, 63*3=<<63*3=189>>189", "189")
    (made,) = perturbed_problems([of_words], "2026-11-22")
    plums, weeks = map(int, re.findall(r"\d+", made.problem))
    assert int(made.answers[0]) == plums * 7 * weeks


def test_columns_of_a_file_may_have_other_names(tmp_path):
    path = tmp_path / "own.jsonl"
    row = {"question": SPENT.problem, "answer": "31", **SPENT.meta}
    replace_rows(path, [row])
    fields = {"problem": "question"}
    (made,) = load_benchmark(f"perturbed:{path}:2026-11-22", fields=fields)
    assert made.meta["from"] == SPENT.problem


@pytest.mark.failure(33)
def test_what_cannot_be_perturbed_is_one_line(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"problem": "1+1", "answer": "2"}\n')
    for spec, message in (
        (f"perturbed:{path}:2026-11-22", "no problem can get new numbers"),
        (f"perturbed:{path}:today", "date 'today': must have digits"),
        ("perturbed:2026-11-22", "must be perturbed:BENCHMARK:DATE"),
    ):
        with pytest.raises(ValueError, match=message):
            load_benchmark(spec)


def test_of_gsm8k_a_sixth_can_be_asked_again(shared_data):
    path = shared_data / "eval" / "gsm8k_test.jsonl"
    made = perturbed_problems(read_problems(path), "2026-11-22")
    assert len(made) == 211
    shares = [float(Fraction(p.answers[0])) for p in made]
    assert np.isfinite(shares).all()
    assert all(p.problem != p.meta["from"] for p in made)
