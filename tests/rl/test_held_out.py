"""Several held-out sets: curves, summary, model card; incomplete sets are marked."""

import pytest

from configs import quickstart
from configs.base import from_config
from rl import checkpoint
from rl.files import read_rows, replace_rows
from rl.run_spec import validate
from tests.rl.in_process import run_here

pytestmark = pytest.mark.usefixtures("quick_compilation")

WORDS = "rl.problems.words:problems"


def _sums(path, *problems):
    replace_rows(path, [{"problem": p, "answer": str(eval(p))} for p in problems])
    return str(path)


@pytest.fixture
def config(tmp_path, cache, traced):
    c = quickstart.get_config()
    c.compiled = ""
    c.steps = 2
    c.model.maker_args.update(cache=str(cache), steps=1, layers=1)
    c.data.train_args.held_out = c.model.maker_args.held_out = 8
    c.data.eval = {
        "sums": _sums(tmp_path / "sums.jsonl", *(f"{i}+{i}" for i in range(12))),
        "long": _sums(tmp_path / "long.jsonl", "1+1", "1+2", "1+1+1+1+1"),
    }
    c.data.eval_args = {}
    c.rollout.max_response_tokens = c.rollout.group_size = 4
    c.rollout.slots = 16
    c.batch.prompts_per_step = c.batch.prompts_per_update = 4
    c.dynamic_sampling.filter = False
    c.eval.samples, c.eval.every_steps, c.eval.problems = 2, 1, 4
    c.checkpoint.every_steps = 1
    return c


def test_each_set_has_its_curve_and_the_first_decides(config, tmp_path, capsys):
    workdir = tmp_path / "work"
    summary = run_here(config, workdir)
    rows = [row for _, row in read_rows(workdir / "metrics.jsonl")]
    rows = [row for row in rows if "eval/accuracy" in row]
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["eval/problems"] == 4 and row["eval/long/problems"] == 2
        assert 0 <= row["eval/long/greedy_accuracy"] <= 1
        assert row["eval/long/left_out"] == 1 and "eval/left_out" not in row
    # Before and after, all problems are evaluated; the curve is over the same four.
    for part, row in (("base", rows[0]), ("final", rows[2])):
        assert summary[part]["problems"] == 12
        assert summary[part]["curve"]["problems"] == 4
        assert summary[part]["curve"]["accuracy"] == row["eval/accuracy"]
        others = summary[part]["sets"]
        assert list(others) == ["long"] and others["long"]["problems"] == 2
        assert others["long"]["left_out"] == 1
    records = checkpoint.records_in(workdir / "checkpoints")
    scores = {step: record.score for step, record in records.items()}
    assert scores == {step: rows[step]["eval/accuracy"] for step in (1, 2)}
    marked = " on 2 problems (incomplete: 1 left out)"
    assert capsys.readouterr().out.count(marked) == 3
    card = (workdir / "hf" / "README.md").read_text()
    assert card.count("; long avg@2 ") == card.count(marked) == 2
    for name, count in (("held_out", 12), ("held_out_long", 2)):
        assert len((workdir / f"{name}.jsonl").read_text().splitlines()) == count


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eval": 3}, "config.data.eval=3: must be files, a function, or"),
        ({"eval": {"a": ""}}, "config.data.eval.a='': must be files or a function"),
        ({"eval": {"a/b": "x.jsonl"}}, "config.data.eval: 'a/b' cannot name a set"),
        ({"eval": {"a": "no.jsonl"}}, "no.jsonl: no such file"),
        ({"eval_args": {"b": {}}}, "config.data.eval_args.b={}: must be a dict of"),
        ({"eval": {"a": WORDS}, "eval_args": {"a": {"splt": "x"}}},
         "config.data.eval_args.a.splt='x': unknown key"),
        ({"eval": {"a": WORDS}, "eval_args": {"a": {"split": "x", "count": 1}}},
         f"config.data.eval.a={WORDS!r}: split='x', levels=(1, 2, 3): split must be"),
    ],
)  # fmt: skip
def test_a_set_that_does_not_fit_is_one_line(config, change, message):
    config.data.update(change)
    with pytest.raises(ValueError) as error:
        validate(from_config(config))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.failure(59)
def test_a_set_without_a_prompt_that_fits_is_one_line(config, tmp_path):
    config.data.eval = _sums(tmp_path / "long.jsonl", "1+1+1+1+1")
    with pytest.raises(ValueError, match="max_prompt_tokens=8: all prompts of config."):
        validate(from_config(config))
