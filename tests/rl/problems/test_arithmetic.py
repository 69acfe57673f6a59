"""The quickstart's base, as it is described before it is made, and uneven sums."""

import contextlib
import json

import pytest

from configs import quickstart
from rl.problems import arithmetic
from rl.problems.arithmetic import make_base, uneven_problems
from rl.problems.tokenizer import AutoTokenizer


def _described(tmp_path, **changes):
    arguments = {**quickstart.get_config().model.maker_args, **changes}
    arguments["cache"] = str(tmp_path / "cache")
    (tmp_path / "described").mkdir()
    folder = make_base(**arguments, described_in=tmp_path / "described")
    assert folder == tmp_path / "described"
    assert not (tmp_path / "cache").exists()
    return folder, json.loads((folder / "config.json").read_text())


def test_a_description_has_config_and_tokenizer_and_makes_nothing(tmp_path):
    folder, config = _described(tmp_path)
    assert config["vocab_size"] == 40 and config["num_hidden_layers"] == 3
    assert not list(folder.glob("*.safetensors"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer("12+34?\n")["input_ids"]) == 7


@pytest.mark.failure(115)
def test_a_base_that_another_process_made_is_not_replaced(tmp_path, monkeypatch):
    """The other process may be reading it: several hosts make the same base."""

    @contextlib.contextmanager
    def locked(folder):
        with made_once(folder):
            (folder / "model.safetensors").write_bytes(b"of another process")
        with made_once(folder) as missing:
            yield missing

    made_once = arithmetic.made_once
    monkeypatch.setattr(arithmetic, "made_once", locked)
    arguments = {**quickstart.get_config().model.maker_args, "cache": str(tmp_path)}
    folder = make_base(**arguments)
    assert (folder / "model.safetensors").read_bytes() == b"of another process"


def test_shares_of_the_sums_are_always_right_and_never():
    sums = uneven_problems(count=400, easy=0.3, hard=0.3, held_out=512, seed=0)
    assert len({p.id for p in sums}) == 400
    golds = [len(p.answers) for p in sums]
    assert 90 <= golds.count(200) <= 150  # 0 to 199: every sum, and every slip
    never = [p for p in sums if p.answers == ("200",)]
    assert 90 <= len(never) <= 150
    for p in sums:
        if p not in never:
            a, b = map(int, p.problem.split("+"))
            assert str(a + b) in p.answers
    assert {p.level for p in sums} == {None}
    assert sums == uneven_problems(count=400, easy=0.3, hard=0.3, held_out=512, seed=0)
    other = uneven_problems(count=400, easy=0.3, hard=0.3, held_out=512, seed=1)
    assert {p.id for p in sums} != {p.id for p in other}
