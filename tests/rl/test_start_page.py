"""The page of a start: repeats, the example, and the look for vLLM."""

import os
import pathlib
import re
import shlex
import socket
import sys

import pytest

from configs import quickstart
from configs.base import from_config
from models.hf import WEIGHTS
from rl import start_page as pages
from rl.base_model import base_folder
from rl.files import replace_rows
from rl.problems.templates import TEMPLATES
from rl.run_spec import validate
from rl.start_page import dry_run, start_page
from rollout.cores import usable_cores
from tests.other_processes import make_program


@pytest.fixture
def config(tmp_path):
    c = quickstart.get_config()
    c.model.maker_args.cache = str(tmp_path / "bases")
    c.data.train_args = c.data.eval_args = {}
    c.data.train = _file(tmp_path / "t.jsonl", "1+1 2", "1+1 3", "2+2 4", "1+1+1+1+1 5")
    c.data.eval = {"sums": _file(tmp_path / "e.jsonl", "2+2 4", "3+3 6")}
    return c


def _file(path, *pairs):
    rows = [dict(zip(("problem", "answer"), p.split(), strict=True)) for p in pairs]
    replace_rows(path, rows)
    return str(path)


@pytest.mark.failure(61)
def test_what_is_left_out_or_occurs_twice_is_shown(config, tmp_path):
    page = dry_run(validate(from_config(config)), tmp_path / "work")
    lines = page.splitlines()
    assert lines[0].startswith("devices              cpu: ")
    assert "t.jsonl: 4 rows, 3 used; left out: 1 longer than config.rollout" in page
    assert f"\nsums                 {tmp_path}/e.jsonl: 2 rows, 2 used\n" in page
    warnings = [line for line in lines if " of 3 training problems " in line]
    assert len(warnings) == 3, page  # a duplicate, which contradicts; one held out too
    assert f'\n  data.eval.sums = "{tmp_path}/e.jsonl"\n' in page
    assert "\n  eval.every_steps = 20\n" in page and "batch.ppo_epochs" not in page
    assert not (tmp_path / "work").exists()


@pytest.mark.failure(162)
def test_a_column_that_is_a_tolerance_is_named(config, tmp_path):
    row = {"id": "a", "problem": "1+1", "answer": "2", "error": 1}
    replace_rows(tmp_path / "t.jsonl", [row])
    page = start_page(validate(from_config(config)), tmp_path)
    line = "column error of 1 problems is the tolerance of decimal answers, such as 1"
    assert line in page


@pytest.mark.failure(96)
def test_only_cores_that_the_process_may_use_are_counted(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert " on 1 cores; " in pages.describe_devices()


@pytest.mark.failure(96)
@pytest.mark.parametrize(
    ("quota", "cores"), [("250000 100000", 3), ("max 100000", 8), ("", 8), ("5 100", 1)]
)
@pytest.mark.parametrize("version", [1, 2])
def test_the_quota_of_a_container(tmp_path, monkeypatch, version, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8))
    monkeypatch.setattr("rollout.cores._CGROUPS", tmp_path)
    monkeypatch.setattr("rollout.cores._OWN", tmp_path / "own")
    if version == 2:
        (tmp_path / "own").write_text("0::/\n")
        (tmp_path / "cpu.max").write_text(quota)
    else:
        (tmp_path / "own").write_text("5:memory:/a\n4:cpu,cpuacct:/docker/b\n0::/\n")
        (tmp_path / "cpu").mkdir()  # a container sees its own group as the root
        limit, _, period = quota.replace("max", "-1").partition(" ")
        (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{limit}\n")
        (tmp_path / "cpu" / "cpu.cfs_period_us").write_text(f"{period}\n")
    assert usable_cores() == cores


def test_devices_per_copy_are_checked_at_the_start(config):
    config.rollout.tensor = 7
    with pytest.raises(ValueError, match="config.rollout.tensor=7: must divide "):
        validate(from_config(config))


def test_a_reward_that_does_not_see_the_answer_is_named(config, tmp_path):
    config.reward.function = "tests.rl.examples:wrong"
    page = start_page(validate(from_config(config)), tmp_path)
    assert r"\boxed{2} -1; \boxed{3} -1 (equal rewards: are both right" in page


@pytest.mark.failure(188)
@pytest.mark.parametrize(
    "template, reward, named",
    [("r1", "verifier", True), ("qwen_math", "verifier", False), ("r1", "a:b", False)],
)
def test_a_template_whose_answers_are_not_read_is_named(
    config, template, reward, named
):
    config.data.template, config.reward.function = template, reward
    note = pages._unread_answers(from_config(config), TEMPLATES[template])
    assert ("'r1' asks for <answer> tags, but the verifier reads" in note) is named


def test_a_gold_that_counts_as_wrong_is_named(config, tmp_path):
    config.reward.function = "rl.reward.judges:exact_match"
    config.reward.right_from = 1.5
    page = start_page(validate(from_config(config)), tmp_path)
    assert r"\boxed{2} 1 (counts as wrong: below config.reward.right_from=1.5)" in page


def test_the_size_of_a_checkpoint_includes_a_saved_reference(config, tmp_path):
    def checkpoint_bytes(reset_every):
        config.objective.kl_penalty, config.objective.reset_every = 0.1, reset_every
        page = start_page(validate(from_config(config)), tmp_path)
        return float(re.search(r"\ncheckpoints +([\d.]+) GB", page)[1])

    config.model.maker_args.hidden_size = 512
    assert checkpoint_bytes(5) > checkpoint_bytes(0) > 0


@pytest.mark.parametrize("section,key", [("model", "path"), ("objective", "reference")])
def test_a_dry_run_opens_the_weights(config, tmp_path, section, key):
    folder = base_folder(from_config(config), described_in=tmp_path)
    config.objective.kl_penalty = 0.1
    if section == "model":
        config.model.maker = ""
    config[section][key] = str(folder)
    with pytest.raises(ValueError, match=r"model.safetensors: no such file; download"):
        validate(from_config(config))
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match=r"is a Git LFS pointer.*`git lfs pull`$"):
        validate(from_config(config))


@pytest.mark.failure(71)
def test_a_dry_run_looks_for_vllm(config, tmp_path):
    config.rollout.backend = "vllm"
    vllm = config.rollout.vllm
    for python, message in (
        ("no/python", "config.rollout.vllm.python='no/python': cannot import vLLM"),
        (sys.executable, "No package metadata was found for vllm); run `make vllm`"),
    ):
        vllm.python = python
        with pytest.raises(ValueError) as error:
            dry_run(validate(from_config(config)), tmp_path)
        assert message in str(error.value) and "\n" not in str(error.value)
    stub = make_program(tmp_path / "python", "echo 0.19.0")
    vllm.python = str(stub)
    assert pages._find_vllm(from_config(config)) == f"vLLM: 0.19.0 in {stub}"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        vllm.url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ValueError, match="config.rollout.vllm.url=.*: no vLLM"):
            pages._find_vllm(from_config(config))


@pytest.mark.failure(70)
def test_what_to_type_next(tmp_path):
    c = quickstart.get_config()
    first, *commands = pages.next_commands(tmp_path, from_config(c)).splitlines()
    assert first == "next:" and len(commands) == 3
    assert all(str(tmp_path) in command for command in commands)
    c.reward.function = "mine:brief"
    *_, last = pages.next_commands(pathlib.Path("a b"), from_config(c)).splitlines()
    assert shlex.split(last)[0] == f"PYTHONPATH={sys.path[0]}"
    assert shlex.split(last)[-6:] == [
        *("--reward", "mine:brief", "--right_from", "1", "--out", "a b/evaluation")
    ]
    c.data.eval = ""  # without a held-out set
    assert "tools.evaluate" not in pages.next_commands(tmp_path, from_config(c))
