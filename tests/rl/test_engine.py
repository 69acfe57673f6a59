"""The engine: what an objective needs in addition to the policy."""

import dataclasses
import gc
import types

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from configs import quickstart
from configs.base import from_config
from rl import setup
from rl.base_model import base_folder
from rl.engine import Engine
from rl.groups.packing import pack_groups
from rl.processes.group import SingleProcess
from rl.run_spec import validate
from rl.start_page import start_page
from rl.update.objective import update_metrics
from rollout.types import EMPTY, SamplingParams
from tests.rl.examples import example_hyper, make_group

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture
def config(cache):
    config = quickstart.get_config()
    config.data.eval = ""
    config.model.maker_args.update(cache=str(cache), steps=1, layers=1)
    config.model.dtype = "bfloat16"
    config.objective.kl_penalty = 0.01
    config.batch.prompts_per_update = 2
    return config


def _groups(config):
    """Four groups of words that the model has."""
    vocab, groups = validate(from_config(config)).model.vocab_size, []
    for seed in range(4):
        group = make_group([True, False], lengths=[3, 5], seed=seed)
        for ids in (group.prompt_ids, *(c.token_ids for c in group.completions)):
            ids %= vocab
        groups.append(group)
    return groups


@pytest.fixture
def opened(config, tmp_path, traced):
    """Opens the engine of `config`, without compiling its sampler."""
    (tmp_path / "work").mkdir()
    return lambda: setup.make_engine(validate(from_config(config)), tmp_path / "work")


def _arguments(config, groups, *, version, updates=2, sampler_is_trainer=True):
    """Of `Engine.update` and `Engine.prepare`."""
    config.rollout.backend = "jax" if sampler_is_trainer else "vllm"
    c = from_config(config)
    rows = validate(c).row_multiple
    mini_batches = pack_groups(groups, c, version=version, row_multiple=rows)
    hypers = [
        example_hyper(learning_rate=0.01, first_update=i == 0) for i in range(updates)
    ]
    return mini_batches, hypers


def _resident():
    return sum(array.nbytes for array in jax.live_arrays())


def test_a_state_is_read_once_memory_is_free(opened, monkeypatch):
    engine = opened()
    engine.save(1, {"at": 1}, healthy=True, score=None)
    gc.collect()
    before = _resident()
    state = sum(array.nbytes for array in jax.tree.leaves(engine.state))
    served = sum(array.nbytes for array in jax.tree.leaves(engine.sampler._params))
    read, freed = ocp.PyTreeCheckpointer.restore, []

    def reading(self, *args, **kwargs):
        freed.append(before - _resident())
        return read(self, *args, **kwargs)

    monkeypatch.setattr(ocp.PyTreeCheckpointer, "restore", reading)
    assert engine.restore() == (1, {"at": 1})
    engine.publish(1)
    assert len(freed) == 1 and freed[0] >= state + served > state
    engine.close()


def test_a_reference_is_the_base_and_stays_so(config, opened, tmp_path):
    plan = validate(from_config(config))
    assert "reference" in start_page(plan, tmp_path)
    engine, groups = opened(), _groups(config)
    first, second = (
        update_metrics([stats])["policy/kl_reference"]
        for stats in engine.update(*_arguments(config, groups, version=0))
    )
    # The same parameters by two programs in bfloat16; then an update between them.
    assert 0 <= first < 1e-4 < second
    of_base, of_policy = map(jax.tree.leaves, (engine.reference, engine.state.params))
    assert {x.dtype for x in of_base} == {np.dtype("bfloat16")}
    assert {x.sharding for x in of_base} == {x.sharding for x in of_policy}
    engine.close()


def test_a_reference_that_is_reset_is_saved_with_the_policy(config, opened):
    config.objective.reset_every = 2
    engine, groups = opened(), _groups(config)
    base = jax.device_get(engine.state.reference)
    references = [base]
    for version in (1, 2, 3):
        engine.update(*_arguments(config, groups, version=version - 1))
        engine.publish(version)
        references.append(jax.device_get(engine.state.reference))
        if version == 2:
            policy = jax.tree.map(lambda x: x.astype("bfloat16"), engine.state.params)
    _assert_equal(references[1], base)
    _assert_equal(references[2], jax.device_get(policy))
    _assert_equal(references[3], references[2])
    assert (references[2]["embedding"] != base["embedding"]).any()
    engine.save(3, {}, healthy=True, score=None)
    engine.restore()
    _assert_equal(jax.device_get(engine.state.reference), references[2])
    engine.close()


def _assert_equal(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_another_model_is_the_reference(config, opened, cache):
    teacher = quickstart.get_config()
    teacher.model.maker_args.update(cache=str(cache), steps=1, layers=2, hidden_size=32)
    config.objective.reference = str(base_folder(from_config(teacher)))
    engine, groups = opened(), _groups(config)
    (batch, *_), *_ = engine.prepare(*_arguments(config, groups, version=0))
    mask = np.asarray(batch.loss_mask)
    gap = np.asarray(batch.reference_logprobs - batch.old_logprobs)[mask]
    assert np.abs(gap).min() > 0
    assert not np.asarray(batch.reference_logprobs)[~mask].any()
    engine.close()
    config.objective.reset_every = 5
    message = "its architecture differs from the base model's"
    with pytest.raises(ValueError, match=message):
        validate(from_config(config))
    config.objective.reference = "nowhere"
    with pytest.raises(ValueError, match="^config.objective.reference="):
        validate(from_config(config))


def test_only_the_policys_own_tokens_keep_the_samplers_logprobs(config, opened):
    config.objective.old_logprobs = "sampler"
    config.objective.kl_penalty = 0.0
    engine, groups = opened(), _groups(config)
    _, (first, *_) = _arguments(config, groups, version=1)

    def prepared(**how):
        arguments = _arguments(config, groups, version=1, **how)
        return [batch for (batch,) in engine.prepare(*arguments)]

    # The first two groups are of the step's version, of the others a token is older.
    for group in groups:
        for completion in group.completions:
            completion.versions[:] = 1
    groups[3].completions[1].versions[0] = 0
    fresh, stale = prepared()
    np.testing.assert_array_equal(fresh.old_logprobs, fresh.sampler_logprobs)
    scored = engine.step.score(engine.state.params, stale, first)
    np.testing.assert_array_equal(stale.old_logprobs, scored)
    # The example's log-probabilities are none of this policy's.
    assert np.abs(scored - stale.sampler_logprobs).max() > 0.1
    # What a server drew is scored too; of a single update nothing is.
    elsewhere, _ = prepared(sampler_is_trainer=False)
    scored = engine.step.score(engine.state.params, elsewhere, first)
    np.testing.assert_array_equal(elsewhere.old_logprobs, scored)
    assert not np.any(prepared(updates=1)[0].old_logprobs)
    engine.close()


ENDED = dataclasses.replace(EMPTY, finish_reason="stop")
BEGUN = [[EMPTY, ENDED, EMPTY], [EMPTY] * 3]


def test_sampling_passes_everything_on_and_asks_whether_to_stop():
    events = []

    class Sampler:
        def sample(self, prompts, params, *, seed, partial, on_finished, on_pause):
            assert (prompts, params.n, seed, partial) == ([[1], [2]], 3, 7, BEGUN)
            on_finished(1, 2, "a completion")
            assert on_pause() is True
            return "completions"

    parts = dict(sampler=Sampler(), processes=SingleProcess(), embedded=True)
    stop = dict(check_stop=lambda: events.append("pause"))
    engine = types.SimpleNamespace(**parts, **stop)
    params = SamplingParams(n=3, max_tokens=1, stop_token_ids=(0,))
    hooks = dict(on_finished=lambda *of: events.append(of), on_pause=lambda: "enough")
    got = Engine.sample(engine, [[1], [2]], params, seed=7, partial=BEGUN, **hooks)
    assert got == "completions" and events == [(1, 2, "a completion"), "pause"]
