"""Whole runs under rewards of the user's: trained on, evaluated by, ended, resumed."""

import pathlib
import sys

import pytest

from configs import quickstart
from configs.base import from_config
from rl.checksums import steps_in
from rl.files import read_rows, replace_rows
from rl.reward.rewards import RewardError
from rl.run_spec import validate
from rl.start_page import start_page
from rollout.jax_sampler import JaxSampler
from rollout.types import SamplerError
from tests.rl.in_process import run_here

pytestmark = pytest.mark.usefixtures("quick_compilation")

HERE = "tests.rl.reward.functions"

# 1.0 for an even length, 0.1 for a digit: what a model can do that has learned nothing.
SCORE = """
import os
calls = 0
def score(text, problem):
    global calls
    calls += 1
    if calls > {most} and os.path.exists({flag!r}):
        raise LookupError("gone")
    even = len(text) % 2 == 0
    return {{
        "reward": 1.0 if even else 0.1 * any(c.isdigit() for c in text),
        "components": {{"length": len(text), "even": even}},
    }}
"""


@pytest.fixture
def config(cache, tmp_path, monkeypatch, traced):
    monkeypatch.syspath_prepend(str(tmp_path))
    c = quickstart.get_config()
    c.compiled = str(cache / "compiled")
    c.steps = 2
    c.model.maker_args.update(cache=str(cache), steps=1, layers=1)
    c.data.eval_args.held_out = c.data.train_args.held_out = 8
    c.model.maker_args.held_out = 8
    c.rollout.max_response_tokens = 8
    c.rollout.slots = 16
    c.rollout.group_size = 4
    c.batch.prompts_per_step = c.batch.prompts_per_update = 4
    c.dynamic_sampling.max_rounds = 50
    c.eval.samples, c.eval.greedy = 2, False
    c.reward.workers, c.reward.timeout = 1, 30.0
    c.checkpoint.every_steps = 0
    return c


def rows(workdir):
    timings = ("seconds/", "speed/", "timing/", "sampling/seconds", "checkpoint/")
    return [
        {k: v for k, v in row.items() if not k.startswith(timings)}
        for _, row in read_rows(workdir / "metrics.jsonl")
    ]


@pytest.fixture
def graded(config, tmp_path):
    """A config with a graded reward, which fails while a file is there."""
    (tmp_path / "graded.py").write_text(
        SCORE.format(flag=str(tmp_path / "broken"), most=60)
    )
    config.reward.function = "graded:score"
    yield config
    sys.modules.pop("graded", None)


@pytest.mark.failure(44)
@pytest.mark.failure(46)
def test_the_same_reward_judges_evaluation(graded, tmp_path):
    """And partial credit trains, without being right."""
    run_here(graded, tmp_path / "w")
    base, *steps, last = rows(tmp_path / "w")
    assert base["eval/component/even"] == base["eval/accuracy"] > 0
    assert last["eval/component/even"] == last["eval/accuracy"]
    trained = [row for row in steps if "policy/loss" in row]
    assert trained
    for row in trained:
        assert row["component/even"] == pytest.approx(row["reward/accuracy"])
        assert 0 < row["reward/accuracy"] < row["reward/mean"] < 1
        assert row["policy/grad_norm"] > 0
        assert row["component/length"] > 0
    samples = read_rows(tmp_path / "w" / "samples.jsonl")
    assert all("length" in row["components"] for _, row in samples)


@pytest.mark.slow  # three runs, their programs compiled where they are called
@pytest.mark.ci
def test_one_that_raises_ends_the_run(graded, tmp_path, monkeypatch):
    graded.steps, flag = 5, tmp_path / "broken"
    run_here(graded, tmp_path / "whole")
    flag.touch()
    with pytest.raises(RewardError) as error:
        run_here(graded, tmp_path / "w")
    assert "='graded:score': " in str(error.value)
    assert "graded.py:8: LookupError: gone; problem '" in str(error.value)
    done = [row["step"] for row in rows(tmp_path / "w") if "reward/mean" in row]
    saved = {path.name for path in (tmp_path / "w" / "checkpoints").iterdir()}
    assert 0 < len(done) < 5 and str(done[-1]) in saved
    flag.unlink()
    run_here(graded, tmp_path / "w")
    assert rows(tmp_path / "w") == rows(tmp_path / "whole")


class Closed:
    """A sink that leaves a file behind once nothing comes any more."""

    def __init__(self, workdir, *, config, keep):
        self._file = workdir / "closed"

    def scalars(self, step, values):
        pass

    samples = scalars

    def close(self):
        self._file.touch()


@pytest.mark.failure(12)
def test_where_no_sampler_is_left_no_step_is_lost(graded, tmp_path, monkeypatch):
    sample = JaxSampler.sample

    def gone(self, *arguments, **how):
        if self._version == 1:
            raise SamplerError("no vLLM server is left")
        return sample(self, *arguments, **how)

    monkeypatch.setattr(JaxSampler, "sample", gone)
    graded.data.eval, graded.log.sinks = "", (f"{__name__}:Closed",)
    with pytest.raises(SamplerError, match="no vLLM server is left"):
        run_here(graded, tmp_path / "w")
    # Without a word to the loop the folder would not be there: a save was not due.
    assert steps_in(tmp_path / "w" / "checkpoints") == {1}
    assert (tmp_path / "w" / "closed").exists()


@pytest.mark.slow  # four runs
@pytest.mark.ci
def test_weights_that_no_sampler_takes_are_saved(graded, tmp_path, monkeypatch):
    publish = JaxSampler.publish

    def refuses(self, params, version):
        if version == 1:
            raise error
        return publish(self, params, version)

    graded.data.eval = ""
    for error in (SamplerError("out of step"), OSError(28, "full")):
        workdir = tmp_path / type(error).__name__
        with monkeypatch.context() as patched:
            patched.setattr(JaxSampler, "publish", refuses)
            with pytest.raises(type(error), match=str(error.args[-1])):
                run_here(graded, workdir)
        assert steps_in(workdir / "checkpoints") == {1}
    run_here(graded, workdir)
    run_here(graded, tmp_path / "whole")
    # All is as in the whole run but the first step's row, which was not yet written.
    assert rows(workdir)[-1]["step"] == 2
    assert rows(workdir)[-1] == rows(tmp_path / "whole")[-1]


def test_only_the_leader_tries_a_reward_out(config, monkeypatch):
    """The leader may have hundreds of followers, and call a service."""
    config.reward.function = f"verifier + 0.5*{HERE}:fails_on_empty"
    monkeypatch.setattr("rl.run_spec.jax.process_index", lambda: 1)
    assert not validate(from_config(config)).code
    monkeypatch.setattr("rl.run_spec.jax.process_index", lambda: 0)
    with pytest.raises(ValueError, match="IndexError"):
        validate(from_config(config))


def test_it_is_tried_before_anything_is_looked_for(config):
    config.model.maker, config.model.path = "", "no/such/model"
    config.reward.function = f"verifier + 0.5*{HERE}:fails_on_empty"
    with pytest.raises(ValueError, match="config.reward.function=.*IndexError"):
        validate(from_config(config))
    config.reward.function, config.eval.reward = "verifier", f"{HERE}:nothing"
    with pytest.raises(ValueError, match="config.eval.reward=.*returned None"):
        validate(from_config(config))


def _file(path: pathlib.Path, *golds):
    rows = ({"problem": f"{i}?", "answer": gold} for i, gold in enumerate(golds))
    replace_rows(path, rows)
    return str(path)


@pytest.mark.failure(159)
@pytest.mark.failure(51)
def test_golds_are_read_when_a_run_is_planned(config, tmp_path):
    worked = "She sold 48/2 = <<48/2=24>>24 clips.\n#### 24"
    config.data.train = _file(tmp_path / "t.jsonl", "1", worked, "3")
    config.data.train_args = config.data.eval_args = {}
    config.data.eval = _file(tmp_path / "e.jsonl", "7", "\\frac{1}{")
    one = r"t.jsonl: 1 of 3 problems \(33.33%\) .* not a worked solution, from which"
    with pytest.raises(ValueError, match=one):
        validate(from_config(config))
    config.data.unreadable = 0.5
    plan = validate(from_config(config))
    assert [p.answers for p in plan.train] == [("1",), ("3",)]
    assert [p.answers for p in plan.held_out[0].problems] == [("7",)]
    assert "1 of 3 problems" in plan.train_set.note
    assert "1 of 2 problems" in plan.held_out[0].note
    assert "left out" in start_page(plan, tmp_path)
    # A reward of the user's may read what the verifier cannot.
    config.reward.function, config.data.unreadable = f"{HERE}:simple", 0.0
    plan = validate(from_config(config))
    assert len(plan.train) == 3 and not plan.train_set.note


@pytest.mark.failure(51)
def test_a_start_says_what_is_left_out(config, tmp_path, monkeypatch, capsys):
    """Without `--dry_run` too: the user must see that problems are missing."""

    class Started(Exception):
        pass

    def begin(*_, **__):
        raise Started

    monkeypatch.setattr("rl.run.make_engine", begin)
    config.data.train = _file(tmp_path / "t.jsonl", "1", "\\frac{1}{", "3")
    with (tmp_path / "t.jsonl").open("a") as file:
        file.write('{"problem": "1+1+1+1+1", "answer": "5"}\n')
    config.data.train_args, config.data.unreadable = {}, 0.5
    with pytest.raises(Started):
        run_here(config, tmp_path / "w")
    said = capsys.readouterr().out
    assert "4 rows, 2 used; left out: 1 longer than config.rollout.max_pro" in said
    assert "max_prompt_tokens, 1 with an unreadable gold or prompt\n" in said
    assert "\nWARNING: " in said
    assert "t.jsonl: 1 of 4 problems (25.00%) cannot be used, such as the gold" in said
