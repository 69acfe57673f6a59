"""docs/extending.md: a reward, a data source and a metric, short, run as shown."""

import contextlib
import pathlib
import re
import sys

import pytest

from configs.base import from_config
from configs.reading import read_config
from rl.reward.rewards import Rewards
from rl.run_spec import validate
from rl.types import Problem

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "extending.md"
FILES = dict(
    re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE.read_text(), re.M | re.S)
)
OWN = ["my_reward_config.py", "my_data_config.py", "my_metric_config.py"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The page's files, where a user would have them."""
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_each_is_short():
    for name in OWN:
        lines = FILES[name] + FILES[name.replace("_config", "")]
        assert len(lines.splitlines()) < 30, name


@pytest.mark.parametrize("name", OWN)
def test_a_config_of_the_page_is_a_run(mine, name):
    """A plan reads its data, and tries its reward."""
    config = read_config(str(mine / name))
    config.model.maker_args.cache = str(mine / "bases")
    plan = validate(from_config(config))
    assert plan.train and not (mine / "bases").exists()


def test_they_give_what_the_page_says(mine):
    """The partial credit of a box, the sum, and the metric that teaches nothing."""
    formulas = {"graded": "my_reward:score + 0.1*my_reward:graded"}
    formulas["measured"] = "verifier + 0*my_metric:columns"
    opened = Rewards(formulas, workers=1, timeout=20.0, right_from=1.0)
    problem = Problem(id="p", problem="2+2", answers=("4",))
    texts = ["\\boxed{4}", "\\boxed{5}", "=4="]
    with contextlib.closing(opened) as rewards:
        graded = rewards.reward("graded")([texts], [problem])[0]
        measured = rewards.reward("measured")([texts], [problem])[0]
    assert [s.components["my_reward:score"] for s in graded] == [1.0, 0.1, 0.0]
    assert [s.verdict.correct for s in graded] == [True, False, False]
    assert [s.reward for s in graded] == pytest.approx([1.01, 0.11, 0.025])
    assert [s.reward for s in measured] == [1.0, -1.0, -1.0]
    assert [s.components["columns"] for s in measured] == [0, 0, 2]
