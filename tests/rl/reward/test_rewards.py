"""Rewards by a formula: the user's contract, its faults, weights, lost calls."""

import contextlib
import dataclasses
import math
import os
from subprocess import PIPE

import pytest

from configs.base import Reward
from rl.reward.rewards import RewardError, Rewards, Term, parse, try_out
from rl.types import Problem
from tests.other_processes import eventually, is_running, python, start_python

HERE = "tests.rl.reward.functions"
KEY = "config.reward.function"
FOUR = Problem(id="a-7", problem="2+2", answers=("4",), meta={"column": 3})
FIVE = Problem(id="a-8", problem="2+3", answers=("5",), meta={"column": 4})
# In one pool, as a run has it; the terms of each are asked for by a key.
FUNCTIONS = (
    "simple batch waits waits_for_all judge fails nan infinite_part no_list word"
    " vast stubborn several misspelt short"
)
FORMULAS = {name: f"{HERE}:{name}" for name in FUNCTIONS.split()} | {
    "sum": f"verifier + 0.1*{HERE}:simple - 2*{HERE}:batch",
    "half": f"0.5*{HERE}:judge",
    "weighty": f"1e30*{HERE}:judge",
    "clash": f"{HERE}:batch + {HERE}:own_part",
}


HOW = Reward(workers=1, timeout=20)


def opened(formula, *, on_lost=print, **how):
    settings = dataclasses.replace(HOW, **how)
    return contextlib.closing(Rewards({KEY: formula}, settings, on_lost=on_lost))


@pytest.fixture(scope="module")
def rewards():
    with contextlib.closing(Rewards(FORMULAS, HOW)) as opened:
        yield opened


def judge(rewards, name, texts):
    """The scores of one group, all of it asked FOUR."""
    (scores,) = rewards.reward(name)([texts], [FOUR])
    return scores


@pytest.mark.failure(185)
def test_terms_are_read():
    first = Term(1.0, "verifier")
    assert parse("verifier", key=KEY) == (first,)
    terms = first, Term(0.1, "my.room:f"), Term(-0.2, "m:g")
    assert parse(" verifier+ 0.1*my.room:f -2e-1 * m:g", key=KEY) == terms
    terms = first, Term(-1.0, "my-reward:f"), Term(-1.0, "a.b-c:g")
    assert parse("verifier-my-reward:f-a.b-c:g", key=KEY) == terms
    for wrong in ("", "verifer", "m:", "verifier m:f", "0.1", "verifier + ", "m:f+m:f"):
        with pytest.raises(ValueError, match=f"^{KEY}="):
            parse(wrong, key=KEY)


@pytest.mark.failure(44)
def test_a_number_is_right_from_one_on_and_not_above_nothing(rewards):
    scores = judge(rewards, "simple", ["\\boxed{4}", "\\boxed{3}", ""])
    assert [s.reward for s in scores] == [1.0, 0.1, 0.0]
    assert [s.verdict.correct for s in scores] == [True, False, False]
    assert {s.verdict.rule for s in scores} == {"reward"}
    assert [s.verdict.answer for s in scores] == ["4", "3", None]


def test_a_batch_is_all_completions_of_a_problem_with_its_columns(rewards):
    groups = [["4", "44"], ["x", "5"]]
    fours, fives = rewards.reward("batch")(groups, [FOUR, FIVE])
    assert [s.reward for s in fours + fives] == [0.5, 1.0, 1.0, 1.0]
    assert [s.verdict.correct for s in fours + fives] == [True, True, False, True]
    assert fives[1].components == {"length": 1, "column": 4}


def test_two_groups_of_one_problem_are_two_batches(rewards):
    """Side by side where a pass over the problems ends; as one: 0.5, 1.0, 0.25."""
    first, second = rewards.reward("batch")([["44", "4444"], ["4"]], [FOUR, FOUR])
    assert [s.reward for s in first + second] == [0.5, 1.0, 1.0]


def test_async_ones_wait_together(rewards):
    scores = judge(rewards, "waits", ["a"] * 5)
    assert [s.reward for s in scores] == [5.0] * 5
    assert judge(rewards, "waits_for_all", ["a"])[0].reward == 1.0


def test_what_it_cannot_judge_has_no_verdict(rewards):
    known, unknown = judge(rewards, "judge", ["a", "a?"])
    assert known.verdict.correct is True
    assert unknown.verdict.correct is None and math.isnan(unknown.reward)


def test_a_sum_has_weights_and_its_first_term_says_what_is_correct(rewards):
    right, wrong = judge(rewards, "sum", ["\\boxed{4.0}", "4"])
    assert right.reward == pytest.approx(1 + 0.1 * 1.0 - 2 * 1.0)
    assert wrong.reward == pytest.approx(-1 + 0.1 * 1.0 - 2 * 1 / 11)
    assert [right.verdict.correct, wrong.verdict.correct] == [True, False]
    assert (right.verdict.rule, wrong.verdict.rule) == ("number", "no_answer")
    terms = dict.fromkeys(("verifier", f"{HERE}:simple", f"{HERE}:batch"), 1.0)
    assert right.components == terms | {"length": 11, "column": 3}
    half, unknown = judge(rewards, "half", ["a", "a?"])
    assert (half.reward, half.verdict.correct) == (0.5, True)
    assert math.isnan(unknown.reward)
    with pytest.raises(RewardError, match="two parts of the sum are called 'length'"):
        judge(rewards, "clash", ["a"])
    with pytest.raises(RewardError, match=r"1e\+30\*.+:judge' is 1e\+30: must be"):
        judge(rewards, "weighty", ["4"])


def test_counts_are_of_completions_whatever_judged_them(rewards):
    before = rewards.counts
    judge(rewards, "sum", ["4", "5"])
    after = rewards.counts
    assert after["judged"] - before["judged"] == 2
    assert after["no_answer"] - before["no_answer"] == 2


def test_what_it_raises_is_named_and_the_next_call_goes_on(rewards):
    with pytest.raises(RewardError) as error:
        judge(rewards, "fails", ["good", "x" * 500 + "bad"])
    message = str(error.value)
    place = f"{HERE.replace('.', '/')}.py:{_line('no such')}"
    start = f"fails='{HERE}:fails': {place}: KeyError: 'no such\\ncolumn'; problem"
    assert message.startswith(f"{start} 'a-7', completion 'xxx")
    assert message.endswith("xxxbad'") and len(message) < 400 and "\n" not in message
    assert judge(rewards, "fails", ["good"])[0].reward == 1.0


def _line(part):
    with open(f"{HERE.replace('.', '/')}.py") as file:
        return next(n for n, line in enumerate(file, 1) if part in line)


@pytest.mark.parametrize(
    "name, what",
    [
        ("nan", "returned nan"),
        ("infinite_part", "returned components['x']=inf"),
        ("no_list", "returned 1.0, not a list"),
        ("word", "returned '1.0', not a finite number"),
        ("vast", "returned 1e+30, whose magnitude exceeds 16,777,216;"),
        ("stubborn", "returned a Stubborn, not a finite number;"),
        ("several", "returned [1.0, 2.0], not a finite number"),
        (
            "misspelt",
            "returned a dict with the unknown key 'componets'; the keys are reward",
        ),
        ("short", "returned a list of length 1, not 2"),
    ],
)
def test_what_is_against_the_contract_is_named(rewards, name, what):
    with pytest.raises(RewardError) as error:
        judge(rewards, name, ["a", "b"])
    place = f"tests/rl/reward/functions.py:{_line(f'def {name}(')}"
    start = f"{name}='{HERE}:{name}': {place}: {what}"
    assert str(error.value).startswith(start)
    assert str(error.value).endswith("; problem 'a-7', completion 'a'")


def test_a_fault_is_found_on_one_problem():
    """A model may well say nothing, which this one has not thought of."""
    with pytest.raises(RewardError) as error:
        try_out({KEY: f"verifier + {HERE}:fails_on_empty"}, FOUR, HOW)
    message = str(error.value)
    assert message.startswith(f"{KEY}='{HERE}:fails_on_empty': tests/rl/reward/func")
    assert message.endswith("out of range; problem 'a-7', completion ''")


def test_a_function_of_another_trainer_is_told_the_contract():
    """Called with this project's arguments it raised an error of its own."""
    with pytest.raises(RewardError) as error:
        try_out({KEY: f"{HERE}:of_trl"}, FOUR, HOW)
    assert str(error.value) == (
        f"{KEY}='{HERE}:of_trl': tests/rl/reward/functions.py:{_line('def of_trl(')}:"
        " has the arguments (prompts, completions, **kwargs); they must be (completion,"
        " problem) or (completions, problems)"
    )


@pytest.mark.failure(215)
@pytest.mark.failure(79)
@pytest.mark.parametrize(
    "name, what",
    [
        ("nowhere:f", r"cannot be imported \(ModuleNotFoundError: No module named 'no"),
        (f"{HERE}:absent", r".*/functions\.py does not define 'absent'"),
        ("math:score", ".* does not define 'score'"),
        ("my/own.py:f", "must name a module, not a file; write 'own:f' and put the"),
        (f"{HERE}:no_function", "must be a function, not 3"),
    ],
)
def test_what_is_no_function_is_refused(name, what):
    with pytest.raises(RewardError, match=f"^{KEY}='{name}': {what}"):
        try_out({KEY: name}, FOUR, HOW)


def test_answers_are_read_behind_the_delimiter():
    with opened(f"{HERE}:simple", after="</think>") as rewards:
        texts = ["\\boxed{3}</think>\\boxed{4}", "\\boxed{4}</think>"]
        scores = judge(rewards, KEY, texts)
    assert [s.verdict.answer for s in scores] == ["4", None]


def test_a_call_that_hangs_is_named_and_costs_its_own_verdict():
    messages = []
    with opened(f"{HERE}:hangs", timeout=1, on_lost=messages.append) as rewards:
        scores = judge(rewards, KEY, ["a", "hang", "b"])
        assert [s.verdict.correct for s in scores] == [True, None, True]
        assert math.isnan(scores[1].reward) and rewards.counts["lost"] == 1
    place = f"tests/rl/reward/functions.py:{_line('def hangs')}"
    assert messages == [
        f"{KEY}='{HERE}:hangs': {place}: took too long (1 s; make the"
        " function faster, or raise config.reward.timeout);"
        " problem 'a-7', completion 'hang'"
    ]


_RUN = f"""
import sys
from configs.base import Reward
from rl.reward.rewards import Rewards
from tests.rl.reward.test_rewards import FOUR, KEY
own = {{KEY: "{HERE}:starts"}}
rewards = Rewards(own, Reward(workers=1, timeout=float(sys.argv[2])))
rewards.reward(KEY)([[sys.argv[1]]], [FOUR])
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", ["worker", "run"])
def test_what_it_starts_ends_with_its_worker_and_with_the_run(tmp_path, killed):
    file, errors = tmp_path / "id", tmp_path / "errors"
    seconds = {"worker": "1", "run": "600"}[killed]
    with errors.open("w") as stderr:
        run = start_python("-c", _RUN, file, seconds, stdin=PIPE, stderr=stderr)
    with run:
        try:
            if killed == "worker":
                eventually(lambda: "took too long" in errors.read_text())
            else:
                eventually(lambda: file.exists() and file.read_text())
                assert is_running(int(file.read_text()))
                run.kill()
            eventually(lambda: not is_running(int(file.read_text())))
        finally:
            run.kill()


@pytest.mark.failure(112)
def test_one_may_print_where_nothing_reads_the_output():
    code = _RUN.replace(":starts", ":prints").replace("sys.stdin.read()", "")
    code += "\nassert rewards.reward(KEY)([['a']], [FOUR])[0][0].reward == 1"
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    how = {"stdout": writer, "stderr": None, "capture_output": False}
    python("-c", code, "a", 20, env=environment, check=True, **how)
    os.close(writer)


@pytest.mark.failure(102)
@pytest.mark.parametrize("edited", ["edited_reward.py", "helper_of_reward.py"])
def test_an_edited_file_is_not_mixed_with_the_old_one(tmp_path, monkeypatch, edited):
    own = "import os\nfrom helper_of_reward import VALUE\ndef score(c, problem):\n"
    own += "    if c: os._exit(1)\n    return VALUE\n"
    (tmp_path / "edited_reward.py").write_text(own)
    (tmp_path / "helper_of_reward.py").write_text("VALUE = 0.25\n")
    monkeypatch.syspath_prepend(tmp_path)
    with opened("edited_reward:score") as rewards:

        def reward(text):
            ((score,),) = rewards.reward(KEY)([[text]], [FOUR])
            return score.reward

        assert reward("") == 0.25
        assert math.isnan(reward("ends the worker")) and reward("") == 0.25
        assert [*rewards.code["edited_reward:score"]] == [
            "edited_reward.py", "helper_of_reward.py",
        ]  # fmt: skip
        with (tmp_path / edited).open("a") as file:
            file.write("VALUE = 0.5\n")
        assert reward("") == 0.25  # the worker has the old function
        with pytest.raises(RewardError, match=f"{edited}: the file was edited"):
            reward("ends the worker")


def test_an_edit_before_the_first_call_changes_no_worker(tmp_path, monkeypatch):
    file = tmp_path / "early_edited_reward.py"
    file.write_text("def score(completion, problem):\n    return 0.25\n")
    monkeypatch.syspath_prepend(tmp_path)
    with opened("early_edited_reward:score", workers=3) as rewards:
        file.write_text("def score(completion, problem):\n    return 0.5\n")
        scores = rewards.reward(KEY)([["a"]] * 3, [FOUR] * 3)
    assert [score.reward for (score,) in scores] == [0.25] * 3


def test_one_that_ends_its_worker_is_refused_at_once():
    with pytest.raises(RewardError, match="dies': .*: ended its worker .*'a-7', comp"):
        try_out({KEY: f"{HERE}:dies"}, FOUR, HOW)


def test_a_worker_needs_neither_jax_nor_the_accelerator():
    code = "import sys, rl.verifier.pool, rl.reward.function;"
    code += "assert not {'jax', 'flax', 'numpy'} & sys.modules.keys()"
    python("-c", code, check=True)
