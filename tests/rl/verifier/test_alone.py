"""The folder by itself: another name, no JAX, no numpy; TRL's convention."""

import pathlib
import shutil

import pytest

import rl.verifier
from rl.verifier import reward
from rl.verifier.parse.answers import parse_answer
from tests.other_processes import python

_SCRIPT = """
import sys, time
start = time.process_time()
import compass_verifier as verifier
assert time.process_time() - start < 1
with verifier.VerifierPool(1) as pool:
    (verdict,) = pool.judge([(r"\\boxed{4}", ["3", "4.0"], None)])
assert verifier.is_equivalent(r"2 \\sqrt[3]{x}", "x") is False
assert not {"jax", "numpy", "sympy", "torch", "rl"} & sys.modules.keys()
print(verdict.correct, verifier.is_equivalent("1 m", r"100 \\text{ cm}"))
"""


def test_the_folder_works_under_another_name(tmp_path):
    source = pathlib.Path(rl.verifier.__file__).parent
    shutil.copytree(source, tmp_path / "compass_verifier")
    env = {"PYTHONPATH": str(tmp_path)}
    found = python("-c", _SCRIPT, cwd=tmp_path, env=env, timeout=120)
    assert found.stdout.split() == ["True", "True"], found.stderr


def _as_trl_calls(function, prompts, completions, inputs, state=None):
    """Calls a reward as `GRPOTrainer._calculate_rewards` does (TRL 0.25)."""
    keys = [k for k in inputs[0] if k not in ("prompt", "completion", "completion_ids")]
    columns = {key: [example[key] for example in inputs] for key in keys}
    return function(
        prompts=prompts, completions=completions, completion_ids=[[1]] * len(prompts),
        trainer_state=state, **columns,
    )  # fmt: skip


@pytest.mark.parametrize("conversational", [False, True])
def test_a_reward_for_trl(conversational):
    texts = [r"so \boxed{2.0}", r"\boxed{3}", "none", r"\boxed{7\cdot6}", r"\boxed{1}"]
    golds = ["2", ["2", "4"], "2", "42", r"\frac{1}{"]
    inputs = [
        {"prompt": "p", "answer": gold, "problem": r"What is $6\cdot7$?", "level": 3}
        for gold in golds
    ]
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    given = completions if conversational else texts
    found = _as_trl_calls(reward, ["p"] * 5, given, inputs)
    assert found == [1.0, -1.0, -1.0, -1.0, None]
    assert reward([r"\boxed{7\cdot6}"], answer=["42"])[0] in (1.0, -1.0)


def test_an_answer_that_is_not_understood_has_no_sympy_object():
    with pytest.raises(ValueError, match="unclosed|expected"):
        parse_answer(r"\frac{1}{").to_sympy()
    with pytest.raises(ValueError, match="sympy has no Sign"):
        parse_answer(r"\pm 3").to_sympy()
