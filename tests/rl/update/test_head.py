"""The head: the plain log-softmax and entropy, at a memory that V does not enter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.update import head
from tests.meshes import mesh_of

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROWS, LENGTH, WIDTH, VOCAB = 4, 6, 8, 40
TEMPERATURE = 0.7


def _inputs(dtype):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(ROWS, LENGTH, WIDTH)).astype(dtype)
    table = 3 * rng.normal(size=(VOCAB, WIDTH)).astype(dtype)
    targets = rng.integers(0, VOCAB, (ROWS, LENGTH)).astype(np.int32)
    mask = rng.random((ROWS, LENGTH)) < 0.6
    weights = rng.normal(size=(2, ROWS, LENGTH)).astype(dtype)
    return hidden, table, targets, mask, weights


def _plain(hidden, table, targets, mask):
    logits = jnp.einsum("rtd,vd->rtv", hidden, table) / TEMPERATURE
    logprobs = jax.nn.log_softmax(logits)
    taken = jnp.take_along_axis(logprobs, targets[..., None], axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)
    return jnp.where(mask, taken, 0), jnp.where(mask, entropy, 0)


def _with_gradients(score, hidden, table, targets, mask, weights):
    def loss(hidden, table):
        logprobs, entropy = score(hidden, table, targets, mask)
        loss = jnp.sum(logprobs * weights[0]) + jnp.sum(entropy * weights[1])
        return loss, (logprobs, entropy)

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
    (_, found), gradients = run(hidden, table)
    return [np.asarray(x) for x in (*found, *gradients)]


@pytest.fixture(scope="module")
def plain():
    with jax.enable_x64(True):
        return _with_gradients(_plain, *_inputs(np.float64))


@pytest.mark.failure(45)
@pytest.mark.parametrize(
    ("shape", "where", "block", "chunk"),
    [
        ((1, 1, 1), "cpu", 8192, 64),
        ((1, 1, 1), "gpu", 7, 3),
        ((2, 1, 1), "cpu", 10, 3),
        ((1, 2, 2), "cpu", 7, 3),
        ((1, 2, 2), "gpu", 7, 64),
        ((1, 1, 4), "cpu", 7, 64),
        ((2, 2, 1), "cpu", 7, 3),
    ],
)
def test_any_chunk_and_mesh_give_the_plain_result(
    monkeypatch, plain, shape, where, block, chunk
):
    monkeypatch.setattr(head, "BLOCK", block)
    monkeypatch.setattr(head, "GPU_BLOCK", block)
    monkeypatch.setattr(head, "platform", lambda mesh: where)
    with jax.enable_x64(True):
        mesh = mesh_of(*shape)
        found = _with_gradients(
            lambda *x: head.score_tokens(*x, jnp.float64(TEMPERATURE), mesh, chunk),
            *_inputs(np.float64),
        )
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_hidden_states_outside_the_scored_tokens_do_no_harm():
    """The last position fills the last chunk up: e^1000 there, times 0, is NaN."""
    hidden, table, targets, mask, weights = _inputs(np.float32)
    hidden[-1, -1], mask[-1, -1] = 1e3 * np.sign(table[0]), False
    mesh = mesh_of()
    assert mask.sum() % 16
    how = jnp.float32(TEMPERATURE), mesh, 16
    inputs = hidden, table, targets, mask, weights
    found = _with_gradients(lambda *x: head.score_tokens(*x, *how), *inputs)
    assert all(np.isfinite(x).all() for x in found)


@pytest.mark.failure(32)
def test_temporary_memory_does_not_grow_with_the_vocabulary():
    """4,096 tokens; a whole array of logits would take 2.3 GiB at Qwen's vocabulary."""

    def temporary(vocab):
        mesh = mesh_of()

        def loss(hidden, table, targets, mask):
            scored = hidden, table, targets, mask, jnp.float32(1), mesh, 1024
            logprobs, entropy = head.score_tokens(*scored)
            return jnp.sum(logprobs), entropy

        shapes = [
            jax.ShapeDtypeStruct((1, 4096, 64), jnp.float32),
            jax.ShapeDtypeStruct((vocab, 64), jnp.float32),
            jax.ShapeDtypeStruct((1, 4096), jnp.int32),
            jax.ShapeDtypeStruct((1, 4096), bool),
        ]
        gradient = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        run = jax.jit(gradient).lower(*shapes).compile()
        table = vocab * 64 * 4
        # The table's gradient is an output; while it grows it is a temporary too.
        return run.memory_analysis().temp_size_in_bytes - table

    small, large = temporary(8192), temporary(152064)
    assert large < 1.2 * small
    assert large < 2**28


def test_a_loss_without_the_entropy_pays_nothing_for_its_gradient():
    hidden, table, targets, mask, _ = _inputs(np.float32)
    mesh = mesh_of()

    def lowered(loss):
        def of(hidden, table):
            scored = (hidden, table, targets, mask, jnp.float32(1), mesh, 16)
            return loss(*head.score_tokens(*scored)), None

        gradient = jax.jit(jax.value_and_grad(of, argnums=(0, 1), has_aux=True))
        return gradient.lower(hidden, table).compile().cost_analysis()["flops"]

    def metric(logprobs, entropy):
        return logprobs.sum() + jax.lax.stop_gradient(entropy).sum()

    # Read and not differentiated: as a metric is, or a mask by it.
    seen = lowered(metric)
    read = lowered(lambda logprobs, entropy: (logprobs * (entropy > 1)).sum())
    bonus = lowered(lambda logprobs, entropy: (logprobs - 0.01 * entropy).sum())
    assert read < seen + 10 * mask.size
    assert bonus > seen + 3 * mask.sum() * VOCAB
