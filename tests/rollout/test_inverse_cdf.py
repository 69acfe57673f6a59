"""Draws of tokens: from the distribution, by one pass or two, and from the nucleus."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollout.inverse_cdf import draw_tokens


@pytest.mark.parametrize("words", [384, 300])
def test_one_pass_draws_what_two_passes_draw(words):
    """Greedy rows, ties, an infinite logit and NaN too; and without a branch."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(64, words)).astype(np.float32) * 3
    logits[0, [5, 200]] = logits[0].max() + 1
    logits[1, 7] = -np.inf
    logits[2, 3] = np.nan
    uniforms = rng.random((64, 2), np.float32)
    uniforms[3:6] = 1 - 2**-24

    def draw(temperature, **how):
        run = functools.partial(draw_tokens, truncates=False, **how)
        return jax.jit(run)(logits, uniforms, jnp.float32(temperature), jnp.float32(1))

    for temperature in (0.0, 1.0, 0.7):
        (one, one_logprob), (two, two_logprob) = (
            draw(temperature, one_pass=one_pass) for one_pass in (True, False)
        )
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one_logprob, two_logprob, atol=1e-6)
        assert one[2] == words - 1 and np.isnan(one_logprob[2])
        if temperature == 0:
            assert one[0] == 5
    jaxpr = str(jax.make_jaxpr(lambda: draw(1.0, one_pass=True))())
    assert " cond[" not in jaxpr and " while[" not in jaxpr


def test_draws_follow_the_distribution():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=300).astype(np.float32) * 3
    uniforms = rng.random((20_000, 2), np.float32)
    for top_p in (1.0, 0.7):
        tokens, _ = jax.jit(draw_tokens)(
            jnp.broadcast_to(logits, (20_000, 300)), uniforms, 1.0, top_p
        )
        p = np.exp(logits - logits.max())
        p /= p.sum()
        order = np.argsort(-p)
        keep = order[np.cumsum(p[order]) - p[order] < top_p]
        q = np.zeros(300)
        q[keep] = p[keep] / p[keep].sum()
        counts = np.bincount(np.asarray(tokens), minlength=300)
        assert counts[q == 0].sum() == 0
        expected = q * 20_000
        bins = expected > 5
        chi2 = ((counts[bins] - expected[bins]) ** 2 / expected[bins]).sum()
        assert chi2 < bins.sum() + 5 * np.sqrt(2 * bins.sum())


def test_the_tail_of_a_real_vocabulary_is_drawn_as_it_weighs():
    """Half of what a base model draws at temperature 1 comes of thousands of words."""
    words, draws = 151_936, 8_000
    logits = np.random.default_rng(0).normal(size=words).astype(np.float32) * 2
    uniforms = np.random.default_rng(1).random((draws, 1, 2), np.float32)
    row, one = jnp.asarray(logits)[None], jnp.float32(1)
    tokens, logprobs = jax.lax.map(
        lambda pair: draw_tokens(row, pair, one, one), uniforms
    )
    p = np.exp(np.float64(logits) - logits.max())
    p /= p.sum()
    order = np.argsort(-p)
    # Fiftieths of the mass: the first of a few words, the last of most of them.
    part = np.empty(words, int)
    part[order] = np.minimum(50 * (np.cumsum(p[order]) - p[order]), 49)
    counts = np.bincount(part[np.asarray(tokens)[:, 0]], minlength=50)
    expected = draws * np.bincount(part, p, minlength=50)
    assert ((counts - expected) ** 2 / expected).sum() < 49 + 4 * np.sqrt(2 * 49)
    surprise = -np.asarray(logprobs)[:, 0] + (p * np.log(p)).sum()
    assert abs(surprise.mean()) < 4 * surprise.std() / np.sqrt(draws)


@pytest.mark.parametrize(
    ("scale", "top_p"), [(0.02, 0.01), (1.0, 0.5), (1.0, 0.95), (5.0, 0.999)]
)
def test_the_nucleus_of_a_large_vocabulary_is_neither_larger_nor_smaller(scale, top_p):
    """Its mass, from the log-probability of what was drawn; one entry more at scale
    0.02 would add 1 part in 311. Whole logits at scale 5: ties."""

    logits = np.random.default_rng(0).normal(size=(16, 32_768)) * scale
    logits = (np.round(logits) if scale == 5 else logits).astype(np.float32)
    uniforms = np.random.default_rng(1).random((16, 2), np.float32)
    tokens, logprobs = jax.jit(draw_tokens)(logits, uniforms, 1.0, top_p)
    weights = np.exp(np.float64(logits) - logits.max(axis=-1, keepdims=True))
    for row, token, logprob in zip(weights, tokens, logprobs, strict=True):
        ordered = np.sort(row)[::-1]
        reached = np.cumsum(ordered) >= top_p * row.sum()
        nucleus = row[row >= ordered[np.argmax(reached)]].sum()
        assert row[token] >= ordered[np.argmax(reached)]
        assert row[token] / np.exp(np.float64(logprob)) == pytest.approx(nucleus, 1e-4)
