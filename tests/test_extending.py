"""What docs/extending.md shows works as shown, from a folder outside the repository."""

import contextlib
import json
import pathlib
import re
import sys

import pytest

from configs.base import Reward, from_config
from configs.reading import read_config
from rl.groups.advantages import compute_advantages
from rl.metric_loggers import load_sinks
from rl.metrics import MetricsWriter
from rl.reward.rewards import Rewards
from rl.run_spec import validate
from rl.types import Problem
from rollout.jax_sampler import JaxSampler
from tests.rl.examples import make_group
from tests.rl.in_process import run_here
from tools import check_objective

pytestmark = pytest.mark.usefixtures("quick_compilation")

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "extending.md"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The page's files, written where a user would have them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    blocks = re.findall(
        r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE.read_text(), re.M | re.S
    )
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    yield dict(blocks)
    for name in dict(blocks):
        sys.modules.pop(name.removesuffix(".py"), None)


def test_each_is_short(files):
    assert {"my_loss.py", "my_config.py", "my_advantage.py"} <= files.keys()
    assert all(len(text.splitlines()) < 30 for text in files.values())


def test_the_loss_holds_and_the_config_is_a_run(files, capsys):
    assert check_objective.main(["my_loss:sequence_ratio"]) == 0, capsys.readouterr()
    config = read_config("my_config.py")
    config.objective.advantage = "my_advantage:ranks"
    config.model.maker_args.cache = "bases"
    validate(from_config(config))
    config.objective.function_args = {"bonus": "much"}
    with pytest.raises(ValueError, match="function_args.bonus='much': must be of type"):
        validate(from_config(config))


@pytest.mark.parametrize("name", ["my_reward", "my_data", "my_metric"])
def test_a_config_with_its_module_is_short_and_a_run(files, name):
    """A plan reads its data, and tries its reward."""
    lines = files[f"{name}.py"] + files[f"{name}_config.py"]
    assert len(lines.splitlines()) < 30
    config = read_config(f"{name}_config.py")
    config.model.maker_args.cache = "bases"
    assert validate(from_config(config)).train and not pathlib.Path("bases").exists()


def test_rewards_are_what_the_page_says(files):
    """The partial credit of a box, the sum, and the metric that teaches nothing."""
    formulas = {"graded": "my_reward:score + 0.1*my_reward:graded"}
    formulas["measured"] = "verifier + 0*my_metric:columns"
    opened = Rewards(formulas, Reward(workers=1, timeout=20.0))
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


def test_the_advantage_gives_what_the_page_says(files):
    group = make_group([True, False, False], rewards=[1.0, -1.0, 0.0])
    assert compute_advantages([group], "my_advantage:ranks")[0].tolist() == [1, -1, 0]


def test_the_token_advantage_has_a_number_for_each_token(files):
    group = make_group([True, False], lengths=[4, 2])
    (of_group,) = compute_advantages([group], "my_token_advantage:first_half")
    assert [a.tolist() for a in of_group] == [[1, 1, 0, 0], [-1, 0]]


def test_a_step_with_an_optimizer_a_reference_and_groups(files, tmp_path, monkeypatch):
    # Programs are traced where they are first called, and fewer of them are.
    monkeypatch.setattr(JaxSampler, "warm_up", lambda *_, **__: None)
    config = read_config("my_optimizer_config.py")
    config.objective = read_config("my_reference_config.py").objective
    with_groups = read_config("my_groups_config.py")
    config.rollout.extra_groups = with_groups.rollout.extra_groups
    config.steps, config.compiled, config.data.eval = 1, "", ""
    config.objective.reset_every = 1
    config.dynamic_sampling.filter = False
    config.model.maker_args.update(cache=str(tmp_path / "bases"), steps=1, layers=1)
    config.rollout.group_size, config.rollout.slots = 2, 8
    config.batch.prompts_per_step, config.batch.prompts_per_update = 4, 2
    summary = run_here(config, tmp_path / "work")
    assert summary["updates"] == 2 and summary["skipped"] == 0
    row = json.loads((tmp_path / "work" / "metrics.jsonl").read_text().splitlines()[-1])
    # Two demonstrations a step, of `\boxed{..}` and its end.
    assert row["off_policy/tokens"] > 0 and "policy/kl_reference" in row


def test_the_sink_is_told(files, tmp_path):
    config = read_config("my_sink_config.py")
    sinks = load_sinks(sinks=config.log.sinks)
    writer = MetricsWriter(tmp_path, keep=-1, evaluated=-1, sinks=sinks)
    writer.scalars(1, {"reward/mean": 0.25})
    writer.samples(1, [])
    writer.scalars(1, {"eval/accuracy": 0.5})
    writer.scalars(2, {"reward/mean": 0.5})
    writer.close()
    assert (tmp_path / "reward.csv").read_text() == "1,0.25\n2,0.5\n"
