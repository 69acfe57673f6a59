"""Stages: mixtures, passes, advance rules, and a state that resumes anywhere."""

import collections
import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from configs import quickstart, quickstart_staged
from configs.base import Advance, Sampling, Stage, from_config
from rl.groups.curriculum import Curriculum, NoProblem, fill_gaps
from rl.run_spec import _stages
from rl.types import Problem
from tests.rl.examples import make_problems

PROBLEMS = [
    Problem(id=f"{level}.{i}", problem="?", answers=("1",), level=level)
    for level in (1, 2, 3)
    for i in range(10)
]
TWO = (
    Stage(name="easy", levels={1: 3, 2: 1}, steps=2),
    Stage(name="hard", levels={2: 0.5, 3: 0.5}, group_size=4, eps_high=0.3),
)


def make(stages=TWO, problems=PROBLEMS, **others):
    others = {"on_message": lambda line: None} | others
    return Curriculum(stages, problems, seed=5, sampling=Sampling(), **others)


def draw(curriculum, n):
    return [d.problem.id for d in curriculum.draw(n, size=8, seed=0)]


def counts(accuracy=0.5, solve_all=0.0, *, of=1):
    return {"accuracy": (accuracy * of, of), "solve_all": (solve_all * of, of)}


def one_step(curriculum, step, n=8, updates=True, **shares):
    stage = curriculum.begin(step)
    drawn = draw(curriculum, n)
    curriculum.end_step(counts(**shares), updates=updates)
    return stage.name, drawn


def levels_of(drawn):
    return collections.Counter(int(name[0]) for name in drawn)


def test_the_mixture_is_exact_over_a_stage():
    curriculum = make()
    names, drawn = zip(*(one_step(curriculum, s) for s in range(4)), strict=True)
    assert names == ("easy", "easy", "hard", "hard")
    assert levels_of(drawn[0]) == {1: 6, 2: 2}
    assert levels_of(drawn[0] + drawn[1]) == {1: 12, 2: 4}
    assert levels_of(drawn[2] + drawn[3]) == {2: 8, 3: 8}


def test_all_of_a_level_once_before_any_twice_even_across_stages():
    lines = []
    same = {1: 1.0}
    stages = Stage(name="a", levels=same, steps=1), Stage(name="b", levels=same)
    curriculum = make(stages, on_message=lines.append)
    drawn = sum((one_step(curriculum, s, n=n)[1] for s, n in enumerate((4, 6, 10))), [])
    assert len(set(drawn[:10])) == len(set(drawn[10:])) == 10
    assert drawn[:10] != drawn[10:]
    messages = "step 2 begins stage 'b'", "level 1: pass 2 begins"
    assert lines == [f"curriculum: {line}" for line in messages]


@pytest.mark.failure(18)
def test_only_steps_that_update_count():
    curriculum = make()
    for step in range(5):
        assert one_step(curriculum, step, updates=False)[0] == "easy"
    assert [one_step(curriculum, s)[0] for s in (5, 6, 7)] == ["easy", "easy", "hard"]


@pytest.mark.parametrize(
    ("metric", "seen", "left_after"),
    [
        ("accuracy", [0.1, 0.9, 0.9, 0.9], 3),
        ("accuracy", [0.9, 0.9, 0.9, 0.9], 2),
        ("accuracy", [0.9, 0.1, 0.9, 0.1, 0.1], 5),  # by its last step
        ("solve_all", [0.8, 0.8, 0.1, 0.1], 2),
    ],
)
def test_the_advance_rule_looks_at_a_full_window(metric, seen, left_after):
    rule = Advance(metric=metric, at_least=0.8, window=2)
    stages = (Stage(name="a", advance=rule, steps=5), Stage(name="b"))
    curriculum = make(stages)
    other = "solve_all" if metric == "accuracy" else "accuracy"
    names = [
        one_step(curriculum, step, **{metric: value, other: 0.0})[0]
        for step, value in enumerate([*seen, 0.0])
    ]
    assert names.index("b") == left_after


def test_a_window_pools_its_steps():
    """10 of 10 right and then 20 of 90 are 30%; the mean of the shares would be 61%."""
    rule = Advance(metric="accuracy", at_least=0.31, window=2)
    curriculum = make((Stage(name="a", advance=rule), Stage(name="b")))
    one_step(curriculum, 0, accuracy=1.0, of=10)
    one_step(curriculum, 1, accuracy=2 / 9, of=90)
    assert one_step(curriculum, 2, accuracy=0.4, of=90)[0] == "a"
    # 20 of 90 and then 36 of 90 are 31.1%.
    assert one_step(curriculum, 3)[0] == "b"


def test_a_step_that_sampled_nothing_tells_the_rule_nothing():
    rule = Advance(metric="accuracy", at_least=0.5, window=2)
    curriculum = make((Stage(name="a", advance=rule), Stage(name="b")))
    for step, of in enumerate([1, 0, 0]):
        assert one_step(curriculum, step, accuracy=1.0, of=of)[0] == "a"
    assert one_step(curriculum, 3, accuracy=1.0)[0] == "a"
    assert one_step(curriculum, 4)[0] == "b"


@pytest.mark.failure(30)
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9), st.integers(1, 13))
def test_it_resumes_at_any_step_and_inside_one(step, drawn):
    def tail(curriculum):
        rest = [draw(curriculum, 3)]
        curriculum.end_step(counts(), updates=True)
        return rest + [one_step(curriculum, s) for s in range(step + 1, 14)]

    whole = make()
    for s in range(step):
        one_step(whole, s)
    whole.begin(step)
    draw(whole, drawn)
    state = json.loads(json.dumps(whole.state()))
    resumed = make()
    resumed.restore(state)
    resumed.begin(step)
    assert tail(resumed) == tail(whole)


def test_its_metrics_are_those_of_the_step_that_was_sampled_last():
    curriculum = make()
    stages = []
    for step in range(4):
        one_step(curriculum, step)
        stages.append(curriculum.metrics()["curriculum/stage"])
    # The next step's `begin`, and not the last one's `end_step`, changes the stage.
    assert stages == [1, 1, 2, 2]
    metrics = curriculum.metrics()
    assert len([name for name in metrics if name.startswith("curriculum/")]) == 4
    assert [metrics[f"curriculum/passes_{level}"] for level in (1, 2, 3)] == [1, 1, 0]


def test_no_stages_draw_from_everything():
    stages, _ = _stages(from_config(quickstart.get_config()), PROBLEMS, PROBLEMS)
    _, drawn = one_step(make(stages), 0, n=30)
    assert sorted(drawn) == sorted(p.id for p in PROBLEMS)


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"levels": {"1": 1.0}}, "[0]: missing a required argument: 'name'"),
        ({"name": "a", "step": 3}, "[0].step=3: unknown key"),
        ({"name": "a", "levels": {}}, "[0].levels={}: must be like {'3': 0.5}"),
        ({"name": "a", "levels": {"x": 1}},
         "[0].levels={'x': 1}: must be like {'3': 0.5}"),
        ({"name": "a", "group_size": 1}, "[0].group_size=1: must be at least 2"),
        (5, "[0]=5: must be a dict"),
        ({"name": "a", "levels": [1, 2]}, "[0].levels=(1, 2): must be like {'3': 0.5}"),
        ({"name": "a", "advance": "x"}, "[0].advance='x': must be a dict"),
        ({"name": "a", "advance": ()}, "[0].advance=(): must be a dict"),
        # Of another type it would fail when the stage begins, days into a run.
        ({"name": "a", "group_size": 16.0}, "[0].group_size=16.0: must be of type int"),
        ({"name": "a", "advance": {"metric": "accuracy", "at_least": 1}},
         "[0].advance: missing a required argument: 'window'"),
        ({"name": "a", "advance": {"metric": "loss", "at_least": 1, "window": 1}},
         "[0].advance.metric='loss': must be one of"),
    ],
)  # fmt: skip
def test_a_bad_stage_is_named(section, message):
    config = quickstart_staged.get_config()
    config.curriculum.stages = (section,)
    with pytest.raises(ValueError) as error:
        _stages(from_config(config), PROBLEMS, PROBLEMS)
    assert str(error.value).startswith(f"config.curriculum.stages{message}")


def test_a_gap_in_the_scale_gives_its_share_to_the_nearest_level():
    # A weak grader's: a few are solved now and then, and all the others never.
    problems = make_problems([1] * 10 + [5] * 30)
    stages = (
        Stage(name="first", levels={1: 0.3, 2: 0.3, 3: 0.4}, steps=1),
        Stage(name="last", levels={4: 0.5, 5: 0.5}, steps=1),
        Stage(name="any"),
    )
    filled, messages = fill_gaps(stages, problems)
    # As near to 1 as to 5, level 3 goes to the easier.
    assert [stage.levels for stage in filled] == [{1: 1.0}, {5: 1.0}, None]
    line = "'first': no problem has level 3; its share 0.4 is added to level 1"
    assert messages[1] == line
    assert len(messages) == 3
    curriculum = make(filled, problems)
    curriculum.begin(0)
    assert {d.problem.level for d in curriculum.draw(20, size=8, seed=0)} == {1}
    assert fill_gaps(filled, problems) == (filled, [])


@pytest.mark.parametrize("levels", [{1}, {5, 4}, {None}])
def test_a_level_beyond_the_scale_is_no_gap(levels):
    problems = make_problems(levels)
    stages = (Stage(name="a", levels={3: 1.0}),)
    filled, messages = fill_gaps(stages, problems)
    assert messages == []
    with pytest.raises(NoProblem, match=r"^\[0\].levels: no problem has level 3$"):
        make(filled, problems)


def test_a_level_whose_prompts_are_all_too_long_is_no_gap():
    config = quickstart_staged.get_config()
    config.curriculum.stages = ({"name": "a", "levels": {"1": 1.0, "2": 1.0}},)
    c = from_config(config)
    every = make_problems((1, 2, 3))
    said = (
        "config.curriculum.stages[0].levels: no problem has level 2; prompts that"
        " are unreadable or exceed config.rollout.max_prompt_tokens"
        f"={config.rollout.max_prompt_tokens}: 1; raise it, or remove the level"
    )
    with pytest.raises(ValueError) as error:
        _stages(c, every, [p for p in every if p.level != 2])
    assert str(error.value) == said
    fit = [every[0], every[2]]
    (stage,), gaps = _stages(c, fit, fit)
    assert stage.levels == {1: 2.0} and len(gaps) == 1


def test_stages_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match=r"\[0\]: never ends; set steps or advance"):
        make((Stage(name="a"), Stage(name="b")))
    with pytest.raises(ValueError, match=r"\[1\].levels: no problem has level 5"):
        make((Stage(name="a", steps=1), Stage(name="b", levels={5: 1.0})))
    other = make((Stage(name="a", levels={1: 1.0}),))
    for state in (make().state(), {"stage": 0}):  # the second as of another version
        with pytest.raises(ValueError, match="written with other stages"):
            other.restore(state)
