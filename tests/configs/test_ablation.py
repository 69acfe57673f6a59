"""What an ablation file says, and the config of each of its arms."""

import re
import sys

import pytest

from configs.ablation import Ablation, grid
from configs.ablations import ABLATIONS, get_config
from configs.base import from_config
from configs.reading import UnreadableConfig, read_config
from configs.schema import config_json
from rl.run_spec import validate
from tests.other_processes import make_config

# Enough problems for a stage's levels, and no more than it takes.
FEW = {"data.train_args.held_out": 4000, "data.eval_args.held_out": 8}
FEW["model.maker_args.cache"] = "/nowhere"


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_arm_is_a_run_of_its_own_that_could_begin(name):
    ablation, seen = ABLATIONS[name], set()
    for arm in ablation.arms:
        config = get_config(f"{name}:{arm}")
        seen.add(config_json(config))
        if name == "recipe":  # on the quickstart's base, which needs no package
            quick = read_config("configs/quickstart.py")
            for section in ("model", "data", "rollout", "batch"):
                config[section] = quick[section]
            config.curriculum.stages = ()
        config.update_from_flattened_dict(FEW)
        assert validate(from_config(config)).train
    assert len(seen) == len(ablation.arms) > 1


def test_the_reference_of_most_is_the_base_itself_so_that_they_share_its_runs():
    base = config_json(read_config("configs/quickstart.py"))
    shared = {name for name in ABLATIONS if config_json(get_config(name)) == base}
    assert {*ABLATIONS} - shared == {"draws", "updates", "off_policy", "recipe"}


def test_an_arm_goes_on_any_base(tmp_path):
    base = f"{make_config(tmp_path / 'mine.py', 'c.steps = int(text)')}:7"
    config = read_config(f"configs/ablations.py:clip_higher:eps_high=0.4@{base}")
    assert (config.objective.eps_high, config.steps) == (0.4, 7)
    config = read_config(f"configs/ablations.py:clip_higher@{base}")
    assert (config.objective.eps_high, config.steps) == (0.28, 7)


def test_a_grid_is_every_combination():
    assert grid({"a.b": (1, 2), "c": ("x",)}) == {
        "b=1,c=x": {"a.b": 1, "c": "x"},
        "b=2,c=x": {"a.b": 2, "c": "x"},
    }


@pytest.mark.parametrize(
    "arms,message",
    [
        ({}, "arms={}: give at least one, the reference"),
        ({"": {}}, "arm '': the name must not be empty"),
        ({"a": {}, "b@c": {}}, "arm 'b@c': the name must not"),
        ({"a b": {}}, "arm 'a b': the name must not be empty"),
    ],
)
def test_what_is_no_ablation_is_refused(arms, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Ablation(question="", arms=arms)


@pytest.mark.parametrize(
    "text,message",
    [
        ("nope", "ValueError: ablation 'nope': must be one of mine"),
        ("mine:nope", "ValueError: arm 'nope': must be one of good, typo, kind"),
        ("mine:typo", "unknown key 'eps_hgih'. Did you mean"),
        ("mine:kind", "Could not override field 'eps_high'"),
        ("mine:good@none.py", "none.py: no such file"),
    ],
)
def test_an_arm_that_cannot_be_is_one_line(tmp_path, text, message):
    arms = {"good": {}, "typo": {"objective.eps_hgih": 0.3}}
    arms["kind"] = {"objective.eps_high": "much"}
    (tmp_path / "mine.py").write_text(
        "from configs.ablation import Ablation, make_get_config\n"
        f"mine = Ablation(question='', arms={arms})\n"
        "get_config = make_get_config({'mine': mine})\n"
    )
    with pytest.raises(UnreadableConfig) as caught:
        read_config(f"{tmp_path / 'mine.py'}:{text}")
    assert message in str(caught.value) and "\n" not in str(caught.value)
