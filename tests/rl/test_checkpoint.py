"""Checkpoints that are half-written, or find no room."""

import collections
import shutil

import jax
import numpy as np
import pytest

from models.config import Qwen2Config
from models.qwen2 import Qwen2, init_params
from rl.checkpoint import Checkpoints, abstract_state, load_run_params
from rl.optimizer import make_optimizer
from rl.step import make_step
from sharding.mesh import make_mesh
from tests.models.reference import SMALL
from tests.rl.test_step import OBJECTIVE, OPTIMIZER


@pytest.fixture(scope="module")
def made():
    mesh = make_mesh(data=2, fsdp=2, tensor=2)
    model = Qwen2(Qwen2Config.from_hf({"model_type": "qwen2", **SMALL}), mesh=mesh)
    step = make_step(
        model,
        make_optimizer(**OPTIMIZER),
        mesh,
        temperature=1.0,
        head_chunk=16,
        **OBJECTIVE,
    )
    return step, step.init(init_params(model, mesh, 0))


def test_state_and_loop_come_back_bit_for_bit(made, tmp_path):
    step, state = made
    checkpoints = Checkpoints(tmp_path / "c", keep=2)
    for number in (1, 2, 3):
        checkpoints.save(number, state, {"cursor": number})
    assert checkpoints.latest() == 3
    restored, loop = checkpoints.restore(3, abstract_state(state, step.shardings))
    assert loop == {"cursor": 3}
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.sharding == b.sharding
    assert {p.name for p in (tmp_path / "c").iterdir()} == {"2", "3"}
    abstract = abstract_state(state, step.shardings).params
    number, params = load_run_params(tmp_path / "c", None, abstract)
    assert number == 3
    np.testing.assert_array_equal(params["embedding"], state.params["embedding"])
    with pytest.raises(ValueError, match=r"no checkpoint of step 1; there: \[2, 3\]"):
        load_run_params(tmp_path / "c", 1, abstract)


@pytest.mark.failure(31)
def test_a_half_written_checkpoint_is_passed_over(made, tmp_path):
    step, state = made
    first = Checkpoints(tmp_path / "c", keep=3)
    first.save(1, state, {"cursor": 1})
    first.close()
    # What a kill in the middle of a save leaves behind.
    shutil.copytree(tmp_path / "c" / "1", tmp_path / "c" / "2.orbax-checkpoint-tmp")
    again = Checkpoints(tmp_path / "c", keep=3)
    assert again.latest() == 1
    _, loop = again.restore(1, abstract_state(state, step.shardings))
    assert loop == {"cursor": 1}
    again.save(2, state, {"cursor": 2})
    assert again.latest() == 2


@pytest.mark.failure(31)
def test_a_full_disk_is_noticed_before_anything_is_written(made, tmp_path, monkeypatch):
    _, state = made
    checkpoints = Checkpoints(tmp_path / "c", keep=3)
    checkpoints.save(1, state, {})
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1000))
    with pytest.raises(OSError, match="a checkpoint needs .* 0.00 GB are free"):
        checkpoints.save(2, state, {})
    assert checkpoints.latest() == 1
