"""The embedded sampler: right tokens, right log-probs, on any mesh."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from models.config import DecoderConfig
from models.decoder import Decoder, head_table
from models.hf import load_params
from models.inference import served_params
from rl.metrics import Compiles
from rollout import decoding, jax_sampler
from rollout.jax_sampler import JaxSampler
from rollout.layout import PlatformSettings, make_layout
from rollout.types import SamplingParams
from tests.meshes import mesh_of
from tests.models import reference

pytestmark = pytest.mark.usefixtures("quick_compilation")

STOP = (95,)
ENDLESS = dict(stop_token_ids=(), ignore_stop=True)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A model of transformers and its folder."""
    path = tmp_path_factory.mktemp("model")
    return path, reference.make(path)


@pytest.fixture(scope="module")
def path(theirs):
    return theirs[0]


def _sampler(path, shape=(1, 1, 1), slots=8, tensor=0, **how):
    mesh = mesh_of(*shape)
    model = Decoder(DecoderConfig.from_folder(path), mesh=mesh)
    layout = make_layout(model, slots=slots, tensor=tensor or shape[-1], **how)
    return JaxSampler(layout, load_params(path, model, mesh))


def _params(**changes):
    return SamplingParams(**{"stop_token_ids": STOP, **changes})


def _assert_same(groups, others, atol=1e-4):
    """Compares completions: equal tokens, close log-probabilities."""
    for x, y in zip(sum(groups, []), sum(others, []), strict=True):
        assert x.token_ids.tolist() == y.token_ids.tolist()
        np.testing.assert_allclose(x.sampler_logprobs, y.sampler_logprobs, atol=atol)


def _prompts(n=5, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 95, rng.integers(1, 12)).tolist() for _ in range(n)]


def test_greedy_equals_transformers(theirs):
    path, model = theirs
    greedy = dict(do_sample=False, eos_token_id=None, pad_token_id=0)
    params = _params(max_tokens=30, temperature=0, **ENDLESS)
    ours = _sampler(path).sample(_prompts(), params, seed=0)
    for prompt, (completion,) in zip(_prompts(), ours, strict=True):
        with torch.no_grad():
            ones = torch.ones(1, len(prompt))
            given = dict(inputs=torch.tensor([prompt]), attention_mask=ones)
            expected = model.generate(**given, max_new_tokens=30, **greedy)
        assert completion.token_ids.tolist() == expected[0, len(prompt) :].tolist()
        assert completion.finish_reason == "length"


PAGE = [5, 80, 33, 2, 17, 64, 90, 41, 8, 71] * 3
SHARED = dict(read=128, min_prefix=8)
CPU = PlatformSettings(layers=False, columns=0, tokens=1, call=4, **SHARED)
# As on an accelerator: one loop over the layers, the cache by blocks, several tokens.
PACE = PlatformSettings(layers=True, columns=16, tokens=4, call=8, **SHARED)


@pytest.mark.parametrize(
    ("shape", "tensor", "settings"),
    # Two kv heads on four devices.
    [((1, 1, 1), 1, CPU), ((2, 2, 2), 4, PACE)],
)
def test_a_common_page_is_held_once(path, shape, tensor, settings, monkeypatch):
    """One that is nearly the prefix must not be read as it: the last token of PAGE."""
    params = _params(n=3, max_tokens=20)
    prompts = [PAGE + prompt for prompt in _prompts(7)]
    how = dict(prompt_length=48, response_length=20)
    how_shared = how | dict(settings=settings, common=len(PAGE))
    sampler = _sampler(path, shape, 16, tensor, **how_shared)
    whole = _sampler(path, slots=4, **how)
    assert sampler._layout.prefix == 30 and whole._layout.prefix == 0
    columns = [s._layout.lengths(1, 1, s._layout.prefix)[0] for s in (sampler, whole)]
    assert columns == [(48 - 30 + 20 + 15) // 16 * 16 if settings is PACE else 64, 128]
    other = [*PAGE[:-1], 3, 9]
    for asked in (prompts, [*prompts, other], [PAGE + [7]], [other]):
        ours, alone = (s.sample(asked, params, seed=5) for s in (sampler, whole))
        _assert_same(ours, alone)
    # As with splash attention: each prompt is read with the prefix before it.
    shared = sampler.sample(prompts, params, seed=5)
    monkeypatch.setattr(jax_sampler, "SHARES_PREFIXES", ())
    _assert_same(sampler.sample(prompts, params, seed=5), shared)


def test_a_page_is_held_where_it_pays(path):
    assert _sampler(path, common=63)._layout.prefix == 0
    assert _sampler(path, common=64)._layout.prefix == 64
    # A kernel reads the whole cache, or none of it.
    never = CPU._replace(min_prefix=0)
    assert _sampler(path, common=90, settings=never)._layout.prefix == 0


@functools.partial(jax.jit, static_argnums=0)
def _hidden(model, weights, ids, segments):
    positions = jnp.arange(ids.shape[1])[None]
    return model(weights, ids, positions, segments)[0]


def _logits(sampler, weights, prompt, completion):
    """The trainer's own, `[tokens, words]`, of each token of a completion."""
    whole = [*prompt, *completion.token_ids]
    ids, segments = np.zeros((2, 1, 96), np.int32)
    ids[0, : len(whole)], segments[0, : len(whole)] = whole, 1
    hidden = _hidden(sampler._model, weights, ids, segments)[:, : len(whole)]
    logits = np.asarray(hidden @ head_table(weights).T, np.float64)[0]
    return logits[len(prompt) - 1 : -1]


@pytest.mark.failure(2)
@pytest.mark.parametrize("temperature,top_p", [(1.0, 1.0), (0.6, 1.0), (0.7, 0.8)])
def test_logprobs_are_those_of_the_distribution_drawn_from(path, temperature, top_p):
    sampler = _sampler(path)
    params = _params(n=4, max_tokens=24, temperature=temperature, top_p=top_p)
    groups = sampler.sample(_prompts(), params, seed=3)
    raw_gap = 0.0
    for prompt, completions in zip(_prompts(), groups, strict=True):
        for completion in completions:
            logits = _logits(sampler, sampler._params, prompt, completion)
            raw = jax.nn.log_softmax(jnp.asarray(logits))
            probabilities = np.asarray(jax.nn.softmax(logits / temperature), float)
            for t, token in enumerate(completion.token_ids):
                p = probabilities[t]
                order = np.argsort(-p, kind="stable")
                inside = np.cumsum(p[order]) - p[order] < top_p
                nucleus = order[inside]
                assert token in nucleus
                expected = np.log(p[token] / p[nucleus].sum())
                assert abs(completion.sampler_logprobs[t] - expected) < 1e-4
                raw_gap = max(raw_gap, abs(expected - float(raw[t, token])))
    if temperature != 1:  # what log-probs taken before temperature would be off by
        assert raw_gap > 0.1


@pytest.mark.failure(5)
@pytest.mark.failure(6)
@pytest.mark.failure(7)
@pytest.mark.failure(8)
def test_after_a_publish_the_new_weights_draw_and_no_old_one(path):
    """Weights, keys and values of a prompt that was asked before, the tied head."""
    sampler = _sampler(path)
    params = _params(n=2, max_tokens=12)
    old = sampler._params
    first = sampler.sample(_prompts(), params, seed=3)

    trained = sampler._layout.trained
    own = load_params(path, trained, trained.mesh)
    assert "head" not in own  # tied: one table for what goes in and what comes out
    # The table alone, the layers' values alone: either may be the one left stale.
    for version, name in enumerate(("embedding", "'v'"), 1):

        def moved(key, x, name=name):
            return x * 1.5 if name in jax.tree_util.keystr(key) else x

        new = jax.tree_util.tree_map_with_path(moved, own)
        sampler.publish(new, version)
        served = served_params(new, trained, sampler._model)
        gap = 0.0
        for prompt, group in zip(
            _prompts(), sampler.sample(_prompts(), params, seed=3), strict=True
        ):
            for completion in group:
                assert set(completion.versions) == {version}
                at = np.arange(len(completion.token_ids)), completion.token_ids
                for weights, known in ((served, True), (old, False)):
                    logits = _logits(sampler, weights, prompt, completion)
                    expected = np.asarray(jax.nn.log_softmax(jnp.asarray(logits)))[at]
                    off = np.abs(completion.sampler_logprobs - expected).max()
                    if known:
                        assert off < 1e-4
                    else:
                        gap = max(gap, off)
        assert gap > 0.1  # what the weights before would be off by
    assert {v for group in first for c in group for v in c.versions} == {0}


@pytest.mark.parametrize(
    ("shape", "tensor", "settings"),
    [
        ((2, 1, 1), 1, None),
        ((2, 2, 2), 4, PACE),  # two kv heads on four devices
        ((8, 1, 1), 1, PACE),
    ],
)
def test_any_mesh_gives_the_same_completions(path, shape, tensor, settings):
    params = _params(n=4, max_tokens=40)
    one = _sampler(path, slots=4).sample(_prompts(), params, seed=5)
    many = _sampler(path, shape, slots=16, tensor=tensor, settings=settings)
    _assert_same(one, many.sample(_prompts(), params, seed=5))


def test_where_not_all_copies_read_the_completions_are_the_same(path):
    params = _params(n=2, max_tokens=20)
    prompts = [prompt * 5 for prompt in _prompts(9)]
    how = dict(slots=16, tensor=2, prompt_length=64, response_length=20)
    few = _sampler(path, (8, 1, 1), settings=PACE._replace(read=20), **how)
    all_read = _sampler(path, (8, 1, 1), settings=PACE, **how)
    assert few._layout.prefill_shape(16, 1) == (2, 64)
    assert all_read._layout.prefill_shape(16, 1) == (4, 64)
    groups = [s.sample(prompts, params, seed=5) for s in (few, all_read)]
    _assert_same(*groups, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 2)])
def test_the_decode_batch_narrows_as_completions_end(path, shape, monkeypatch):
    """Nothing is left to begin: slots that are done must not cost to the last."""
    sampler = _sampler(path, shape, slots=16, prompt_length=12, response_length=64)
    sampler.warm_up()
    compiles, steps, longest = Compiles(), {}, 0
    decode = decoding.decode

    def counted(model, settings, truncates, params, state, *rest):
        nonlocal longest
        before, size = np.asarray(state.count), state.count.size
        state, drawn = decode(model, settings, truncates, params, state, *rest)
        tokens = int((np.asarray(drawn.count) - before).max())
        steps[size], longest = steps.get(size, 0) + tokens, max(longest, tokens)
        return state, drawn

    monkeypatch.setattr(decoding, "decode", counted)
    params = _params(n=4, max_tokens=64, stop_token_ids=tuple(range(88, 96)))
    groups = sampler.sample(_prompts(4), params, seed=3)
    lengths = [len(c.token_ids) for group in groups for c in group]
    assert compiles.programs == 0
    assert list(steps) == sorted(steps, reverse=True) and {16, 2} <= set(steps)
    assert sum(steps.values()) == max(lengths)
    # A signal is seen between two calls, which take as long as their tokens.
    assert longest == sampler._layout.settings.call == 4
    # 16 slots to the last would do this many rows of work.
    assert sum(size * n for size, n in steps.items()) < 0.6 * 16 * max(lengths)
    monkeypatch.undo()
    _assert_same(groups, _sampler(path, slots=1).sample(_prompts(4), params, seed=3))


@pytest.mark.failure(24)
def test_finish_reason_says_what_ended_a_completion(path):
    seen = {"stop": 0, "length": 0}
    finished = []
    params = _params(n=16, max_tokens=20, stop_token_ids=(95, 3, 4, 5))
    groups = _sampler(path).sample(
        _prompts(), params, seed=1, on_finished=lambda p, s, c: finished.append((p, s))
    )
    for completion in (c for group in groups for c in group):
        seen[completion.finish_reason] += 1
        ids = completion.token_ids.tolist()
        if completion.finish_reason == "stop":
            assert ids[-1] in (95, 3, 4, 5)  # the stop token is kept, once
        else:
            assert len(ids) == 20 and ids[-1] not in (95, 3, 4, 5)
        assert not set(ids[:-1]) & {95, 3, 4, 5}
        assert len(completion.sampler_logprobs) == len(completion.versions) == len(ids)
    assert min(seen.values()) > 0
    assert sorted(finished) == [(p, s) for p in range(5) for s in range(16)]


def test_a_pause_comes_where_no_completion_ends_and_may_raise(path):
    sampler = _sampler(path)
    params = _params(n=2, max_tokens=20, **ENDLESS)
    finished, pauses = [], []

    def pause():
        pauses.append(len(finished))
        if len(pauses) == 3:
            raise KeyboardInterrupt

    def sample(on_pause):
        how = dict(on_finished=lambda *of: finished.append(of), on_pause=on_pause)
        return sampler.sample(_prompts(), params, seed=1, **how)

    with pytest.raises(KeyboardInterrupt):
        sample(pause)
    assert pauses == [0, 0, 0]
    groups = sample(lambda: pauses.append(len(finished)))
    # Once all have ended there is one more.
    assert pauses[-1] == len(finished) == 2 * len(groups) == 10


def _in_parts(sampler, trained, prompts, params, pauses):
    """Completions that every call but the last leaves unfinished; and all calls'."""
    partial, calls = None, []
    for seed, pause in enumerate(pauses):
        left = [pause]

        def enough(left=left):
            left[0] -= 1
            return left[0] < 0

        how = dict(partial=partial, on_pause=enough)
        partial = sampler.sample(prompts, params, seed=seed, **how)
        calls.append(partial)
        sampler.publish(trained, len(calls))
    return calls


@pytest.mark.parametrize(
    ("shape", "prefix", "temperature"),
    [((1, 1, 1), [], 0.0), ((1, 1, 1), [], 1.0), ((2, 1, 2), PAGE, 1.0)],
)
def test_another_call_goes_on(path, shape, prefix, temperature):
    sampler = _sampler(path, shape, settings=CPU, common=len(prefix))
    assert sampler._layout.prefix == len(prefix)
    alone = sampler if shape == (1, 1, 1) else _sampler(path)
    trained = load_params(path, sampler._layout.trained, sampler._layout.trained.mesh)
    params = _params(n=3, max_tokens=40, temperature=temperature)
    prompts = [prefix + prompt for prompt in _prompts(7)]
    calls = _in_parts(sampler, trained, prompts, params, [1, 2, 0, 3, 10**9])
    sizes = [[len(c.token_ids) for g in call for c in g] for call in calls]
    ended = [sum(not c.unfinished for g in call for c in g) for call in calls]
    assert 0 in sizes[0], "with 8 slots some of 21 have not begun"
    assert ended == sorted(ended) and 0 < ended[-2] < ended[-1] == 21
    for before, after in zip(calls, calls[1:], strict=False):
        for one, other in zip(sum(before, []), sum(after, []), strict=True):
            n = len(one.token_ids)
            assert other is one or one.unfinished
            np.testing.assert_array_equal(other.token_ids[:n], one.token_ids)
            np.testing.assert_array_equal(other.versions[:n], one.versions)
    versions = {v for c in sum(calls[-1], []) for v in c.versions.tolist()}
    assert versions == {0, 1, 2, 3, 4}
    whole = sampler.sample(prompts, params, seed=0)
    for prompt, group, at_once in zip(prompts, calls[-1], whole, strict=True):
        for c, other in zip(group, at_once, strict=True):
            stopped = c.token_ids[-1] in STOP
            assert c.finish_reason == ("stop" if stopped else "length")
            assert len(c.token_ids) == 40 or stopped and len(c.token_ids) < 40
            logits = _logits(alone, alone._params, prompt, c)
            if temperature:
                own = np.asarray(jax.nn.log_softmax(jnp.asarray(logits)))
                drawn = own[np.arange(len(c.token_ids)), c.token_ids]
                np.testing.assert_allclose(c.sampler_logprobs, drawn, atol=1e-4)
            else:
                assert c.token_ids.tolist() == other.token_ids.tolist()


def test_what_does_not_fit_what_is_begun_is_refused(path):
    sampler = _sampler(path)
    params = _params(n=2, max_tokens=9)
    partial = sampler.sample(_prompts(), params, seed=0, on_pause=lambda: True)
    with pytest.raises(ValueError, match="must have n=2 entries for each prompt"):
        sampler.sample(_prompts(4), params, seed=0, partial=partial)
    params = _params(n=2, max_tokens=1)
    with pytest.raises(ValueError, match="unfinished completion of . tokens: must be"):
        sampler.sample(_prompts(), params, seed=0, partial=partial)


def test_too_long_a_request_is_refused_with_both_numbers(path):
    params = _params(max_tokens=120)
    message = "12 must be .* 8 .128 tokens less max_tokens=120"
    with pytest.raises(ValueError, match=message):
        _sampler(path).sample([[1] * 12], params, seed=0)


def test_no_publish_holds_two_copies(path):
    # A start publishes twice, and a skipped step frees no memory before a publish.
    mesh = mesh_of()
    # Of another dtype than the masters, so that the copy shares nothing with them.
    config = DecoderConfig.from_folder(path)
    model = Decoder(config, mesh=mesh, dtype=jnp.bfloat16)
    params = load_params(path, model, mesh)
    layout = make_layout(model, slots=8, tensor=1)

    def served():
        return sum(x.nbytes for x in jax.live_arrays() if x.dtype == jnp.bfloat16)

    held = []

    class Watched(dict):
        def items(self):
            held.append(served())
            return super().items()

    before = served()
    sampler = JaxSampler(layout, Watched(params))
    copy = served() - before
    assert copy > 100_000
    sampler.publish(Watched(params), 1)
    assert held == [before, before]
    assert served() - before == copy
