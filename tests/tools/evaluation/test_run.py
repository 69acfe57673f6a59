import dataclasses
import json
import types

import pytest

from rl.files import locked
from rl.types import Problem
from tests.rl.replay import Replay, decode, encode
from tools.evaluation.files import read_completions, record_conditions
from tools.evaluation.run import Conditions, Task, check_prompts, complete

PROBLEMS = [
    Problem(id=f"p{i}", problem=f"{i}+{i}?", answers=(str(2 * i),)) for i in range(10)
]
LENGTHS = dict(max_tokens=40, context=64, chunk=12)
SAMPLED = Conditions(
    template="none", samples=3, temperature=1.0, top_p=1.0, seed=5, **LENGTHS
)
GREEDY = dataclasses.replace(SAMPLED, samples=1, temperature=0.0, chunk=4)


class Characters:
    """A tokenizer with one token per character."""

    def encode(self, text, **_):
        return encode(text)

    def decode(self, ids, **_):
        return decode(ids)


MODEL = types.SimpleNamespace(stop_token_ids=(0,), tokenizer=Characters())


def seeded(prompt, index, sample, seed):
    return f"{prompt} index {index} sample {sample} seed {seed}"


def task(folder, problems, conditions, name="sums"):
    prompts = [encode(p.problem) for p in problems]
    return Task(folder, name, problems, prompts, conditions)


def sample(folder, conditions, sampler, problems=PROBLEMS, name="sums"):
    with locked(folder):
        complete([task(folder, problems, conditions, name)], lambda: sampler, MODEL)


def texts(folder, name="sums"):
    kept = read_completions(folder)[name]
    return {key: drawn.completion for key, drawn in kept.items()}


@pytest.mark.parametrize("stop_after", range(0, 30, 7))
def test_stopped_anywhere_and_resumed_is_as_if_never_stopped(tmp_path, stop_after):
    sample(tmp_path / "whole", SAMPLED, Replay(seeded))
    with pytest.raises(KeyboardInterrupt):
        sample(tmp_path / "cut", SAMPLED, Replay(seeded, stop_after=stop_after))
    rest = Replay(seeded)
    sample(tmp_path / "cut", SAMPLED, rest)
    assert texts(tmp_path / "cut") == texts(tmp_path / "whole")
    assert len(texts(tmp_path / "cut")) == 30
    # 12 completions a call are 4 problems: full chunks are not asked for again.
    assert len(rest.asked) == 3 - stop_after // 12


def test_greedy_asks_only_for_what_is_missing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        sample(tmp_path, GREEDY, Replay(seeded, stop_after=6))
    rest = Replay(seeded)
    sample(tmp_path, GREEDY, rest)
    # Four of the first chunk, then two of the second, last ones first.
    asked = [prompts for prompts, _, _ in rest.asked]
    assert asked == [["4+4?", "5+5?"], ["8+8?", "9+9?"]]
    assert len(texts(tmp_path)) == 10


def test_seeds_differ_between_chunks_and_benchmarks(tmp_path):
    sampler = Replay(seeded)
    sample(tmp_path, SAMPLED, sampler)
    sample(tmp_path, SAMPLED, sampler, name="other")
    sample(tmp_path / "b", dataclasses.replace(SAMPLED, seed=6), sampler)
    seeds = [seed for _, _, seed in sampler.asked]
    assert len(seeds) == 9 and len(set(seeds)) == 9


def test_long_prompts_get_what_the_context_leaves(tmp_path):
    long = Problem(id="long", problem="x" * 50, answers=("1",))
    problems = [*PROBLEMS[:2], long]
    sampler = Replay(lambda *_: "y" * 99)
    sample(tmp_path, GREEDY, sampler, problems)
    lengths = {id: len(text) for (id, _), text in texts(tmp_path).items()}
    assert lengths == {"p0": 40, "p1": 40, "long": 14}
    assert [params.max_tokens for _, params, _ in sampler.asked] == [40, 14]
    assert check_prompts(task(tmp_path, problems, GREEDY), max_positions=64) == 1


@pytest.mark.failure(26)
def test_what_cannot_be_asked_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(ValueError, match="context=64: must be at most 63, the posit"):
        check_prompts(task(tmp_path, PROBLEMS, GREEDY), max_positions=63)
    full = Problem(id="full", problem="x" * 64, answers=("1",))
    with pytest.raises(ValueError, match="problem full: its prompt of 64 tokens fills"):
        check_prompts(task(tmp_path, [full], GREEDY), max_positions=64)


@pytest.mark.failure(193)
@pytest.mark.parametrize("changes", [{"temperature": -1.0}, {"top_p": 0.0}])
def test_what_no_sampler_can_draw_is_refused_before_a_model_is_loaded(changes):
    with pytest.raises(ValueError, match="must "):
        dataclasses.replace(SAMPLED, **changes)


def test_a_started_evaluation_keeps_its_conditions(tmp_path):
    asked = {"model": "m", "drawing": {"seed": 1, "template": "none"}}
    asked["benchmarks"] = {"a": {"sha256": "1"}}
    record_conditions(tmp_path, asked)
    record_conditions(tmp_path, asked | {"benchmarks": {"b": {"sha256": "2"}}})
    both = json.loads((tmp_path / "conditions.json").read_text())["benchmarks"]
    assert both == {"a": {"sha256": "1"}, "b": {"sha256": "2"}}
    other = {"seed": 2, "template": "none"}
    with pytest.raises(ValueError, match=r"started with drawing.seed=1, not 2"):
        record_conditions(tmp_path, asked | {"drawing": other})
    with pytest.raises(ValueError, match=r"started with benchmarks.a.sha256='1', not"):
        record_conditions(tmp_path, asked | {"benchmarks": {"a": {"sha256": "3"}}})


@pytest.mark.failure(181)
@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "row, message",
    [
        ("{", "completions.jsonl:2: not JSON"),
        ('{"benchmark": "a", "id": "x", "sample": 0}', ":2: completion=None: must be"),
        ('{"benchmark": "a", "id": ["x"], "sample": 0}', r":2: id=\['x'\]: must be"),
        ('{"benchmark": "a", "id": "x", "sample": "0"}', ":2: sample='0': must be"),
        ('{"benchmark": "a", "id": "x", "sample": 1, "completion": "", "tokens":""}',
         ":2: tokens='': must be of type int or be None; remove the row"),
        ('{"benchmark": "a", "id": "x", "sample": 0, "completion": "again"}',
         ":2: a second row for a x sample 0"),
    ],
)  # fmt: skip
def test_malformed_completions_name_the_row(tmp_path, row, message):
    first = '{"benchmark": "a", "id": "x", "sample": 0, "completion": "b"}'
    (tmp_path / "completions.jsonl").write_text(f"{first}\n{row}\n")
    with pytest.raises(ValueError, match=message):
        read_completions(tmp_path)
