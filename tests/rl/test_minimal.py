"""rl.minimal gives the numbers of the loop, bit for bit."""

import types

import jax
import numpy as np
import pytest
import safetensors.numpy

from configs import quickstart
from configs.base import from_config
from models import hf
from rl import minimal
from rl.base_model import base_folder
from rl.files import read_rows
from tests.rl.in_process import run_here


def _config(bases):
    config = quickstart.get_config()
    config.steps = 2
    config.compiled = ""
    config.data.eval = ""
    # It has read enough to be right now and then: many rounds fill a batch.
    config.dynamic_sampling.max_rounds = 60
    config.model.maker_args.update(cache=str(bases), steps=250, layers=2, batch=32)
    config.rollout.group_size = 8
    config.rollout.slots = 64
    config.rollout.max_response_tokens = 32
    config.batch.prompts_per_step = 4
    config.batch.prompts_per_update = 2
    return config


def test_surplus_groups_can_fill_a_batch():
    left = [types.SimpleNamespace(created_step=step) for step in (0, 1, 1, 1, 1, 1)]
    c = from_config(_config("bases"))
    collector = types.SimpleNamespace(c=c, left=left, informative_share=1.0)
    groups, metrics = minimal.Collector.collect(collector, 2)
    assert groups == left[1:5] and collector.left == left[5:]
    assert metrics == {"sampling/groups": 0.0}


@pytest.mark.slow
@pytest.mark.ci
def test_the_loop_and_the_one_file_agree_bit_for_bit(tmp_path):
    config = _config(tmp_path / "bases")
    workdir = tmp_path / "work"
    run_here(config, workdir)
    c = from_config(config)
    params, model, rows = minimal.train(c)

    logged = [row for _, row in read_rows(workdir / "metrics.jsonl")]
    assert [row["step"] for row in rows] == [1, 2]
    assert len(rows[0]) > 15 and "policy/grad_norm" in rows[0]
    for row, of_loop in zip(rows, logged, strict=True):
        assert row == {name: of_loop[name] for name in row}

    folder = base_folder(c)
    hf.save_folder(tmp_path / "hf", params, model, assets=folder, dtype="float32")
    folders = tmp_path / "hf", workdir / "hf", folder
    mine, its, base = (
        safetensors.numpy.load_file(one / "model.safetensors") for one in folders
    )
    for name, array in its.items():
        np.testing.assert_array_equal(mine[name], array, err_msg=name)
    assert any((base[name] != array).any() for name, array in its.items())
    assert jax.tree.leaves(params)[0].dtype == np.float32
