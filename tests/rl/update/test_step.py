"""The update: the same on any mesh, in any packing, by any micro-batch."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import base
from configs.checks import check_config
from models.decoder import Decoder, head_table, init_params, param_shardings
from rl.groups.packing import weigh
from rl.update.objective import objective_from_config, token_logprobs, update_metrics
from rl.update.optimizer import check_descends, make_optimizer, make_schedule
from rl.update.step import make_step
from sharding.rules import put_sharded
from tests.meshes import mesh_of
from tests.models.reference import config_of
from tests.rl.examples import example_hyper, make_group, make_segments, pack

pytestmark = pytest.mark.usefixtures("quick_compilation")

CONFIG = config_of(num_key_value_heads=4)
# Adam turns a gradient that is rounding noise into a full step of random sign; an
# epsilon above the noise keeps the change a smooth function of the gradient.
OPTIMIZER, EPS = base.Optimizer(weight_decay=0.01), 1e-3
OBJECTIVE = objective_from_config(base.RunConfig())


def _groups(count=8):
    rng = np.random.default_rng(0)
    sizes = [(rng.integers(1, 20, 3), rng.integers(1, 9)) for _ in range(count)]
    return [
        make_group([True, False, False], lengths=n.tolist(), prompt=int(prompt), seed=i)
        for i, (n, prompt) in enumerate(sizes)
    ]


def _batches(groups, *, row_length=32, micro_rows=8, old=-4.0, share_prompts=False):
    how = dict(row_multiple=micro_rows, share_prompts=share_prompts)
    tokens = row_length * micro_rows
    batches = pack(make_segments(groups), (row_length,), tokens, **how)
    return [
        b.replace(old_logprobs=np.where(b.loss_mask, old, 0).astype(np.float32))
        for b in weigh(batches, aggregation="token", constant=1)
    ]


@functools.cache
def _initial():
    params = jax.device_get(init_params(Decoder(CONFIG), mesh_of(), 0))
    # Larger than the initial scale: ratios away from 1, both clips in action.
    return jax.tree.map(lambda x: x * 3 if x.ndim > 2 else x, params)


def _params(mesh):
    own = jax.tree.map(np.copy, _initial())  # its buffers may be donated
    return jax.device_put(own, param_shardings(Decoder(CONFIG), mesh))


def _hyper(first=False, learning_rate=1e-2):
    return example_hyper(
        learning_rate=learning_rate, temperature=0.9, first_update=first
    )


@functools.cache  # what one test has traced, the next need not trace again
def _step(
    mesh, eps=EPS, offload=False, config=CONFIG, objective=OBJECTIVE, **model_options
):
    model = Decoder(config, mesh=mesh, **model_options)
    return make_step(
        model, make_optimizer(OPTIMIZER, eps=eps), objective,
        head_chunk=16, offload_optimizer=offload,
    )  # fmt: skip


def _summed(mesh, batches, **options):
    """Gradients, loss and statistics, without the update by them."""
    step, params, hyper = _step(mesh, **options), _params(mesh), _hyper()
    placed = [put_sharded(b, step.rows) for b in batches]
    carry = step.zeros(params, placed[0], hyper)
    for batch in placed:
        carry = step.accumulate(carry, params, batch, hyper)
    return jax.device_get(carry)


def _updated(mesh, batches, hyper=None, **model_options):
    step = _step(mesh, **model_options)
    state = step.init(_params(mesh))
    placed = [put_sharded(b, step.rows) for b in batches]
    before = jax.device_get(state.params)
    state, stats = step.update(state, placed, hyper or _hyper())
    change = jax.tree.map(np.subtract, jax.device_get(state.params), before)
    return float(stats["loss"]), change, jax.device_get(stats)


def test_one_program_scores_at_any_temperature():
    mesh = mesh_of(1, 1, 1)
    step, params = _step(mesh), _params(mesh)
    batch = put_sharded(_batches(_groups())[0], step.rows)
    hidden = jax.jit(Decoder(CONFIG, mesh=mesh).apply)(
        {"params": params}, batch.token_ids, batch.positions, batch.segment_ids,
        prefix_ids=batch.prefix_ids,
    )  # fmt: skip
    counted = np.asarray(batch.loss_mask)[:, 1:]
    assert counted.any()
    for temperature in (0.5, 1.0, 1.6):
        hyper = _hyper().replace(temperature=np.float32(temperature))
        scored = np.asarray(step.score(params, batch, hyper))[:, 1:]
        logits = hidden @ head_table(params).T / temperature
        expected = jnp.take_along_axis(
            jax.nn.log_softmax(logits[:, :-1]), batch.token_ids[:, 1:, None], axis=-1
        )[..., 0]
        assert np.abs(scored - expected)[counted].max() < 2e-5
    assert step.score._cache_size() == 1


def _worst(a, b):
    """Largest difference relative to each tensor's norm."""
    return max(
        float(np.linalg.norm(x - y) / max(np.linalg.norm(y), 1e-30))
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.mark.parametrize("shape", [(1, 8, 1), (2, 2, 2)])
def test_every_mesh_gives_the_same_loss_and_change(shape):
    batches = _batches(_groups())
    one_loss, one_change, one = _updated(mesh_of(), batches)
    loss, change, stats = _updated(mesh_of(*shape), batches)
    assert abs(loss - one_loss) < 1e-5 * abs(one_loss)
    # The update clips the gradient, so the change alone does not tell its scale.
    assert stats["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-5)
    assert _worst(change, one_change) < 1e-5


@pytest.mark.failure(22)
def test_packing_and_micro_batches_cannot_change_the_gradient():
    with jax.enable_x64(True):
        mesh = mesh_of()
        model = Decoder(CONFIG, mesh=mesh, dtype=jnp.float64, param_dtype=jnp.float64)
        params = jax.tree.map(lambda x: x.astype(jnp.float64), _params(mesh))
        groups = _groups()
        hyper = jax.tree.map(jnp.asarray, _hyper())

        @jax.jit
        @jax.grad
        def slope(params, batch):
            wide = jax.tree.map(
                lambda x: x.astype(np.float64) if x.dtype == np.float32 else x,
                batch,
            )
            logprobs, entropy = token_logprobs(
                model, params, wide, temperature=0.9, chunk=16
            )
            return OBJECTIVE.loss(logprobs, entropy, wide, hyper)[0]

        def gradient(batches):
            slopes = [jax.device_get(slope(params, batch)) for batch in batches]
            return jax.tree.map(lambda *parts: np.sum(parts, axis=0), *slopes)

        together = gradient(_batches(groups, row_length=64, micro_rows=32))
        for options in (
            dict(row_length=28, micro_rows=30),  # one segment to a row, nearly
            dict(row_length=64, micro_rows=1),
            dict(row_length=64, micro_rows=1, share_prompts=True),
            dict(row_length=300, micro_rows=2),  # attention goes block by block
            dict(row_length=300, micro_rows=2, share_prompts=True),
        ):
            assert _worst(gradient(_batches(groups, **options)), together) < 1e-12


def test_gradients_of_bfloat16_parameters_add_up_in_float32():
    """64 times the same micro-batch is 64 times its gradient."""
    mesh = mesh_of()
    step = _step(mesh, param_dtype=jnp.bfloat16)
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), _params(mesh))
    batch, hyper = put_sharded(_batches(_groups())[0], step.rows), _hyper()
    carry, sums = step.zeros(params, batch, hyper), {}
    for count in range(1, 65):
        carry = step.accumulate(carry, params, batch, hyper)
        if count in (1, 64):
            sums[count] = jax.device_get(carry[0])
    assert {x.dtype for x in jax.tree.leaves(sums)} == {np.dtype(np.float32)}
    assert _worst(sums[64], jax.tree.map(lambda x: 64 * x, sums[1])) < 1e-6
    before = step.init(params)
    dtypes = [x.dtype for x in jax.tree.leaves(before)]
    after, _ = step.apply(before, carry, hyper)
    assert [x.dtype for x in jax.tree.leaves(after)] == dtypes


@pytest.mark.failure(3)
def test_the_first_update_has_ratio_one_whatever_old_says():
    stats = _updated(mesh_of(), _batches(_groups(), old=-50.0), _hyper(first=True))[2]
    assert stats["max"]["ratio"] == 1
    assert stats["sum"]["ratio"] == stats["sum"]["tokens"]
    assert stats["sum"]["clipped_low"] == stats["sum"]["clipped_high"] == 0
    later = _updated(mesh_of(), _batches(_groups(), old=-50.0), _hyper())[2]
    assert later["max"]["ratio"] > 100


def with_a_metric(policy_logprobs):
    """A user's loss: the policy gradient, and a figure that is nowhere above zero."""
    return -policy_logprobs, {"logprob": policy_logprobs}


def test_the_largest_of_a_negative_figure_is_negative():
    """With padding and the start of the sum counted as zero it was 0."""
    config = base.get_config()
    config.objective.function = f"{__name__}:with_a_metric"
    objective = objective_from_config(base.from_config(config))
    stats = _summed(mesh_of(), _batches(_groups()), objective=objective)[2]
    mean = stats["sum"]["logprob"] / stats["sum"]["tokens"]
    assert mean < float(stats["max"]["logprob"]) < 0


def test_old_logprobs_by_the_scoring_pass_are_the_updates_own():
    mesh = mesh_of(2, 2, 2)
    step = _step(mesh)
    state = step.init(_params(mesh))
    batches = [put_sharded(b, step.rows) for b in _batches(_groups())]
    batches = [
        b.replace(old_logprobs=step.score(state.params, b, _hyper())) for b in batches
    ]
    _, stats = step.update(state, batches, _hyper(first=True))
    assert float(stats["max"]["old_gap"]) < 1e-5
    assert float(stats["sum"]["tokens"]) == sum(
        len(c.token_ids) for g in _groups() for c in g.completions
    )


@pytest.mark.failure(9)
def test_every_parameter_moves_at_a_learning_rate_of_1e_6():
    hyper, eps = _hyper(learning_rate=1e-6), 1e-8  # Adam's own
    _, change, _ = _updated(mesh_of(), _batches(_groups()), hyper, eps=eps)
    # The key bias shifts all scores of a query alike: its gradient is zero but for
    # rotation, so single entries may rest; no tensor may.
    for path, delta in jax.tree_util.tree_leaves_with_path(change):
        moved = np.mean(delta != 0)
        assert moved > 0.5, (jax.tree_util.keystr(path), moved)


@pytest.mark.failure(23)
def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    batches = _batches(_groups())
    bad = batches[0].replace(advantages=np.full_like(batches[0].advantages, np.nan))
    _, change, stats = _updated(mesh_of(), [bad, *batches[1:]])
    assert all(not delta.any() for delta in jax.tree.leaves(change))
    assert stats["skipped"] == 1


@pytest.mark.failure(38)
def test_an_update_that_would_leave_the_finite_numbers_is_not_taken():
    step = _step(mesh_of())
    state = step.init(_params(mesh_of()))
    before = jax.device_get(state.params)
    batches = [put_sharded(b, step.rows) for b in _batches(_groups())]
    # The gradient is finite; the parameters that it would lead to are not.
    state, stats = step.update(state, batches, _hyper(learning_rate=np.inf))
    assert np.isfinite(stats["grad_norm"]) and stats["skipped"] == 1
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state.params), before)


@pytest.mark.failure(39)
def test_every_skip_of_a_step_is_counted_though_its_last_update_is_not():
    step = _step(mesh_of())
    state = step.init(_params(mesh_of()))
    good = [put_sharded(b, step.rows) for b in _batches(_groups())]
    bad = [b.replace(advantages=b.advantages * np.nan) for b in good]
    stats = []
    for batches in (bad, bad, bad, good):
        state, of_update = step.update(state, batches, _hyper())
        stats.append(jax.device_get(of_update))
    metrics = update_metrics(stats)
    assert metrics["policy/skipped"] == 3 and metrics["policy/skipped_in_a_row"] == 3
    assert int(state.updates) == 1
    assert (int(state.skipped), int(state.skipped_in_all)) == (0, 3)


def test_bfloat16_moments_are_refused_where_they_would_stall():
    config = base.get_config()
    config.data.train, config.optimizer.moments_dtype = "any.jsonl", "bfloat16"
    config.optimizer.b2 = 0.999
    with pytest.raises(ValueError, match="b2=0.999: must be at most 0.99"):
        check_config(base.from_config(config))


@pytest.mark.parametrize("masters", ["float32", "bfloat16"])
@pytest.mark.parametrize("moments", ["float32", "bfloat16"])
def test_a_state_keeps_its_dtypes(masters, moments):
    """One that an update widens is another state than a fresh run restores into."""
    optimizer = make_optimizer(base.Optimizer(moments_dtype=moments))
    params = {"kernel": jnp.ones((4, 4), masters)}
    first = optimizer.init(params)
    _, second = optimizer.update(params, first, params)
    assert [m.dtype for m in jax.tree.leaves(first) if m.ndim] == [moments] * 2
    dtypes = [jax.tree.map(lambda x: x.dtype, state) for state in (first, second)]
    assert dtypes[0] == dtypes[1]


@pytest.mark.failure(170)
def test_a_largest_norm_of_zero_disables_clipping():
    """It is not a clip to 0, after which no parameter would change."""
    params, grads = {"norm": jnp.ones(3)}, {"norm": jnp.full(3, 50.0)}
    free, unclipped = (
        make_optimizer(base.Optimizer(function="optax:identity", max_grad_norm=norm))
        for norm in (0, 1e9)
    )
    for optimizer in (free, unclipped):
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        np.testing.assert_array_equal(updates["norm"], grads["norm"])


@pytest.mark.failure(194)
def test_an_optimizer_that_ascends_is_refused():
    for function in ("adamw", "optax.contrib:schedule_free_adamw"):
        check_descends(make_optimizer(base.Optimizer(function=function)), key="k")
    message = "k: its updates have the sign of the gradient"
    with pytest.raises(ValueError, match=message):
        check_descends(optax.scale_by_adam(), key="k")


@pytest.mark.failure(18)
def test_the_schedule_counts_updates():
    settings = dict(warmup_updates=3, decay="linear", decay_updates=10)
    schedule = make_schedule(base.Schedule(learning_rate=1.0, **settings))
    assert [schedule(i) for i in range(4)] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert schedule(8) == pytest.approx(0.5)
    assert schedule(13) == schedule(1000) == 0


def test_a_state_that_rests_on_the_host_is_updated_alike():
    mesh, batches = mesh_of(), _batches(_groups())
    states = []
    for offload in (False, True):
        step = _step(mesh, offload=offload)
        state = step.init(_params(mesh))
        placed = [put_sharded(b, step.rows) for b in batches]
        for _ in range(2):
            state, _ = step.update(state, placed, _hyper())
        states.append(state)
    kinds = [{x.sharding.memory_kind for x in jax.tree.leaves(s)} for s in states]
    assert kinds == [{"device"}, {"device", "pinned_host"}]
    for plain, offloaded in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(np.asarray(plain), np.asarray(offloaded))


def test_remat_changes_nothing():
    batches = _batches(_groups())
    expected, *_ = _summed(mesh_of(), batches)
    for options in (dict(remat="full"), dict(remat="dots")):
        gradient, *_ = _summed(mesh_of(), batches, **options)
        assert _worst(gradient, expected) < 1e-4


def test_no_device_ever_holds_a_whole_table_of_words():
    """Nor its gradient: gathered whole, the two tables would take four times this."""
    mesh, rows = mesh_of(fsdp=8), _batches(_groups())[0]
    config = dataclasses.replace(CONFIG, vocab_size=152064, tie_word_embeddings=False)
    step = _step(mesh, config=config)
    model = Decoder(config, mesh=mesh)
    params, batch = init_params(model, mesh, 0), put_sharded(rows, step.rows)
    carry = step.zeros(params, batch, _hyper())
    compiled = step.accumulate.lower(carry, params, batch, _hyper()).compile()
    table = config.vocab_size * config.hidden_size * 4
    assert compiled.memory_analysis().temp_size_in_bytes < table


def test_a_trace_tells_the_parts_of_an_update_apart():
    mesh = mesh_of()
    step, batch, hyper = _step(mesh), _batches(_groups())[0], _hyper()
    state = step.init(_params(mesh))
    carry = step.zeros(state.params, batch, hyper)

    def names(lowered):
        return re.findall(r'loc\("([^"]*)"', lowered.as_text(debug_info=True))

    accumulated = names(step.accumulate.lower(carry, state.params, batch, hyper))
    for part in ("embedding", "attention", "head", "loss"):
        inside = [name for name in accumulated if re.search(rf"\b{part}\b", name)]
        backward = [name for name in inside if "transpose" in name]
        assert 0 < len(backward) < len(inside)
    applied = names(step.apply.lower(state, carry, hyper))
    assert any("/optimizer/" in name for name in applied)
