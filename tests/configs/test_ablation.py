"""What an ablation file says, and the config of each of its arms."""

import pathlib
import re
import sys

import pytest

from configs.ablation import Ablation, grid
from configs.base import from_config
from configs.reading import UnreadableConfig, read_config, run_file
from configs.schema import config_json
from rl.run_spec import validate

FILES = sorted(pathlib.Path("configs/ablations").glob("[a-z]*.py"))
# Enough problems for a stage's levels, and no more than it takes.
FEW = {
    "data.train_args.held_out": 4000,
    "data.eval_args.held_out": 8,
    "model.maker_args.cache": "/nowhere",
}


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_every_arm_is_a_run_of_its_own_that_could_begin(file):
    ablation, seen = run_file(str(file))["ABLATION"], set()
    for arm in ablation.arms:
        config = read_config(f"{file}:{arm}")
        seen.add(config_json(config))
        if file.stem == "recipe":  # on the quickstart's base, which needs no package
            quick = read_config("configs/quickstart.py")
            for section in ("model", "data", "rollout", "batch"):
                config[section] = quick[section]
            config.curriculum.stages = ()
        config.update_from_flattened_dict(FEW)
        assert validate(from_config(config)).train
    assert len(seen) == len(ablation.arms) > 1


def test_the_reference_of_most_is_the_base_itself_so_that_they_share_its_runs():
    base = config_json(read_config("configs/quickstart.py"))
    shared = {
        file.stem for file in FILES if config_json(read_config(str(file))) == base
    }
    assert shared == {path.stem for path in FILES} - {
        "draws",
        "updates",
        "off_policy",
        "recipe",
    }


def test_an_arm_goes_on_any_base(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from configs import quickstart\n"
        "def get_config(text='5'):\n"
        "    c = quickstart.get_config()\n"
        "    c.steps = int(text)\n"
        "    return c\n"
    )
    base = f"{tmp_path / 'mine.py'}:7"
    config = read_config(f"configs/ablations/clip_higher.py:eps_high=0.4@{base}")
    assert (config.objective.eps_high, config.steps) == (0.4, 7)
    config = read_config(f"configs/ablations/clip_higher.py:@{base}")
    assert (config.objective.eps_high, config.steps) == (0.28, 7)


def test_a_grid_is_every_combination():
    assert grid({"a.b": (1, 2), "c": ("x",)}) == {
        "b=1,c=x": {"a.b": 1, "c": "x"},
        "b=2,c=x": {"a.b": 2, "c": "x"},
    }


@pytest.mark.parametrize(
    "given,message",
    [
        ({"arms": {"a": {}}, "reference": "b"}, "reference='b': must be one of a"),
        (
            {"arms": {"a": {}, "b@c": {}}, "reference": "a"},
            "arm 'b@c': the name must not",
        ),
        (
            {"arms": {"a b": {}}, "reference": "a b"},
            "arm 'a b': the name must not be empty",
        ),
        ({"arms": {"a": {}}, "reference": "a", "seeds": (1, 1)}, "seeds=[1, 1]: give"),
        ({"arms": {"a": {}}, "reference": "a", "seeds": ()}, "seeds=[]: give at"),
    ],
)
def test_what_is_no_ablation_is_refused(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Ablation(**given)


@pytest.mark.parametrize(
    "text,message",
    [
        ("nope", "ValueError: arm 'nope': must be one of good, typo, kind"),
        ("typo", "unknown key 'eps_hgih'. Did you mean"),
        ("kind", "Could not override field 'eps_high'"),
        ("good@none.py", "none.py: no such file"),
    ],
)
def test_an_arm_that_cannot_be_is_one_line(tmp_path, text, message):
    (tmp_path / "mine.py").write_text(
        "from configs.ablation import Ablation\n"
        "ABLATION = Ablation(reference='good', arms={\n"
        "    'good': {},\n"
        "    'typo': {'objective.eps_hgih': 0.3},\n"
        "    'kind': {'objective.eps_high': 'much'},\n"
        "})\n"
    )
    with pytest.raises(UnreadableConfig) as caught:
        read_config(f"{tmp_path / 'mine.py'}:{text}")
    assert message in str(caught.value) and "\n" not in str(caught.value)
