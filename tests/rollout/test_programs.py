"""What the sampler's compiled programs hold: weights that are never moved."""

import collections
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoder import LAYERS, Decoder, init_params
from models.inference import abstract_served, served_params
from rollout import decoding
from rollout import layout as layouts
from rollout.layout import PlatformSettings, device_bytes, layout_bytes, make_layout
from rollout.programs import programs
from sharding.mesh import make_mesh
from sharding.rules import named_sharding
from tests.meshes import mesh_of
from tests.models import reference
from tests.tools.plan.paper import paper_config
from tools.plan.architectures import architecture

pytestmark = pytest.mark.usefixtures("quick_compilation")

SIZES = dict(vocab_size=1024, intermediate_size=128, num_hidden_layers=3, head_dim=16)
SIZES |= dict(num_attention_heads=6, tie_word_embeddings=False)
CONFIG = reference.config_of(**SIZES, max_position_embeddings=512)
# As on an accelerator: one loop over the layers, the cache by blocks, several tokens.
PACE = PlatformSettings(layers=True, columns=16, tokens=4, call=8, read=128)


def _layout(tensor, config=CONFIG, **how):
    mesh = mesh_of(fsdp=8)
    model = Decoder(config, mesh=mesh, dtype=jnp.float32)
    how = dict(slots=16, prompt_length=16, response_length=48, settings=PACE) | how
    return make_layout(model, tensor=tensor, **how)


def _whole(layout, **how):
    """What every copy has whole: prompts that were read, and what decode says."""
    found = programs(layout, **how)
    decode = found["decode"]
    model, settings, truncates, *of_decode = decode.arguments
    _, drawn = jax.eval_shape(
        lambda *a: decoding.decode.__wrapped__(model, settings, truncates, *a),
        *of_decode,
    )
    whole = jax.tree.map(lambda _: named_sharding(layout.mesh), drawn)
    return found["insert"].arguments[3][:2], layouts.with_shardings(drawn, whole)


def _computations(text):
    """Lines of each computation by name."""
    found, name = {}, None
    for line in text.splitlines():
        if head := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line):
            name = head[1]
            found[name] = []
        elif name and line.startswith(" "):
            found[name].append(line)
    return found


_EXCHANGE = re.compile(
    r"= (\S+) (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)"
    r"(?:-start)?\((?:.*replica_groups=(\S+?)(?:, |$))?"
)
_CALLS = re.compile(
    r"(?:body|condition|to_apply|calls|\w+_computations?)="
    r"\{?(%[\w.\-]+(?:, %[\w.\-]+)*)"
)


def exchanges(text):
    """(loops around it, kind, shape, groups) of each collective of a program."""
    computations = _computations(text)
    found, seen = [], set()
    todo = [(re.search(r"^ENTRY %?([\w.\-]+)", text, re.M)[1], 0)]
    while todo:
        name, depth = todo.pop()
        if (name, depth) in seen:
            continue
        seen.add((name, depth))
        for line in computations[name]:
            if match := _EXCHANGE.search(line):
                found.append((depth, match[2], match[1], match[3]))
            inner = depth + (" while(" in line)
            for called in _CALLS.findall(line):
                todo += [(one.strip(" %"), inner) for one in called.split(",")]
    return found


def _exchanged(layout, name="decode"):
    return exchanges(programs(layout)[name].lower().compile().as_text())


def _first_group(of):
    """The devices of a collective's first group, written out or as `[2,4]<=[8]`."""
    if iota := re.fullmatch(r"\[\d+,(\d+)\]<=\[\d+\]", of):
        return list(range(int(iota[1])))
    return [int(n) for n in re.match(r"\{\{([\d,]+)\}", of)[1].split(",")]


def _elements(shape):
    return [
        int(jnp.prod(jnp.array([int(n) for n in dims.split(",") if n] or [1])))
        for dims in re.findall(r"\w+\[([\d,]*)\]", shape)
    ]


@pytest.mark.failure(48)
@pytest.mark.parametrize("tensor", [1, 4, 8])
def test_between_two_looks_only_sums_within_a_copy_are_exchanged(tensor):
    """At 4 and 8 each kv head is on several devices."""
    layout = _layout(tensor)
    found = _exchanged(layout)
    rows = 16 // layout.copies
    tokens = [one for one in found if one[0] >= 2]
    for _, kind, shape, of in tokens:
        assert kind == "all-reduce"
        assert of is None or _first_group(of) == list(range(tensor))
        # Activations, and a draw's numbers: 8 blocks of the vocabulary, 128 words.
        assert _elements(shape)[0] <= rows * 128
    assert bool(tokens) == (tensor > 1)
    # What is looked at: how many have ended, and the longest.
    looks = [one[1:3] for one in found if one[0] == 1]
    assert set(looks) <= {("all-reduce", "s32[]")}
    assert bool(looks) == (layout.copies > 1)


@pytest.mark.failure(48)
def test_with_the_trainers_layout_weights_would_be_gathered_for_every_token():
    """The reader sees what it is to see: the same program on the mesh of the update."""
    layout = _layout(1)
    vars(layout)["mesh"] = layout.trained.mesh
    found = _exchanged(layout)
    gathered = [e for e in found if e[0] >= 2 and e[1] == "all-gather"]
    assert max(n for e in gathered for n in _elements(e[2])) >= 64 * 128


@pytest.mark.parametrize("tensor", [1, 2])
def test_the_cache_ends_with_the_longest_text_and_nothing_else_is_resident(tensor):
    layout = _layout(tensor)
    weights, state = programs(layout)["decode"].arguments[3:5]
    assert layout.lengths(3, 5, 0) == (64, 64)  # 16 and 48 are 64
    resident = [weights, state.cache.k, state.cache.v, _whole(layout)]
    assert device_bytes(resident) == layout_bytes(layout)
    # A prompt beyond what is known has a shape of its own.
    assert layout.lengths(17, 48, 0)[0] == 112


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_page_is_resident_once_in_each_copy(tensor):
    """Not in each of the 2 * tensor slots that a copy has."""
    layout = _layout(tensor, common=12, settings=PACE._replace(min_prefix=8))
    weights, state = programs(layout)["decode"].arguments[3:5]
    assert state.cache.prefix_length == 12 and state.cache.size == 64  # 52 in blocks
    resident = [weights, state.cache.k, state.cache.v, state.cache.prefix]
    assert device_bytes([resident, _whole(layout)]) == layout_bytes(layout)
    # 2 arrays of 3 layers, 2 kv heads (split by tensor) of width 16, 12 positions.
    assert device_bytes(state.cache.prefix) == 2 * 3 * 2 // tensor * 16 * 12 * 4
    assert not [e for e in _exchanged(layout) if e[0] >= 2 and e[1] == "all-gather"]


def test_what_is_begun_is_read_in_rows_that_hold_the_longest_text():
    layout = _layout(2)
    found = programs(layout, partial=True)
    assert found.keys() - programs(layout).keys() == {"prefill_partial"}
    rows, length = found["prefill_partial"].arguments[2].ids.shape
    assert (rows, length) == layout.partial_shape(layout.slot_counts()[-1], 64, 0)
    assert rows == layout.copies and length >= 64 == layout.lengths(1, 1, 0)[0]
    k, _ = jax.eval_shape(
        lambda *a: decoding.prefill.__wrapped__(layout.model, *a),
        *found["prefill_partial"].arguments[1:],
    )
    assert k[0].shape[-1] == length


def test_the_fewest_devices_that_hold_weights_and_cache_share_a_copy():
    need = {n: layout_bytes(_layout(n)) for n in (1, 2, 4, 8)}
    assert need[1] > need[2] > need[4]
    for n in (1, 2, 4):
        assert _layout(0, room=int(need[n] / 0.9) + 1).tensor == n
    with pytest.raises(ValueError, match="rollout.slots=16: .* GiB per device"):
        _layout(0, room=1000)
    with pytest.raises(ValueError, match="rollout.tensor=3: must divide"):
        _layout(3)


def test_what_is_begun_is_counted_where_calls_go_on_with_it():
    layout = _layout(2, partial=True, response_length=240)
    weights, state = programs(layout)["decode"].arguments[3:5]
    resident = [weights, state.cache.k, state.cache.v]
    whole = _whole(layout, partial=True)
    assert device_bytes([resident, whole]) == layout_bytes(layout)
    assert layout_bytes(_layout(2, response_length=240)) < layout_bytes(layout)


class _Device:
    """Of a GPU, what a mesh asks for."""

    platform, device_kind, process_index = "gpu", "H100", 0

    def __init__(self, number):
        self.id = number


def _of_7b(copies, **how):
    config = architecture(paper_config())
    mesh = make_mesh(fsdp=copies, devices=[_Device(n) for n in range(copies)])
    model = Decoder(config, mesh=mesh, dtype=jnp.bfloat16)
    how = dict(prompt_length=1024, response_length=3072) | how
    return make_layout(model, slots=128 * copies, tensor=1, **how)


def test_what_every_copy_has_whole_is_counted_and_does_not_grow_with_the_copies():
    """28 layers, 4 kv heads of width 128, k and v, 2 bytes: 57,344 of a position."""
    # 7,615,616,512 parameters; 128 slots of 4,096 positions.
    alone = 2 * 7_615_616_512 + 57_344 * 128 * 4096
    drawn = 128 * (5 + 8 * 3072)
    one, many, more = (_of_7b(copies) for copies in (1, 64, 1024))
    assert one.prefill_shape(128, 1) == (1, 2048)
    assert layout_bytes(one) == alone + 57_344 * 2048 + drawn
    # An eighth of a copy's cache: 65,536 positions, as 16 rows of the longest text.
    for layout in (many, more):
        assert layout.prefill_shape(layout.slots, 1) == (64, 1024)
        assert layout.partial_shape(layout.slots, 4096, 0) == (16, 4096)
        assert layout_bytes(layout) == alone + 57_344 * 65_536 + drawn * layout.copies
    # With few slots, what eight copies read.
    few = dataclasses.replace(many, slots=64)
    assert few.prefill_shape(64, 1) == (16, 1024)
    assert few.partial_shape(64, 4096, 0) == (4, 4096)


def test_published_weights_travel_a_layer_at_a_time():
    layout = _layout(8)
    # The largest weight of a layer has 64 x 128 entries, of all three 64 x 384.
    largest = collections.Counter()
    for depth, _, shape, _ in _exchanged(layout, "publish_layers"):
        largest[depth] = max(largest[depth], *_elements(shape))
    assert largest[1] <= 64 * 128


# Each layer in an array of its own, as on a GPU or a CPU.
APART = PACE._replace(layers=False)


@pytest.mark.parametrize("settings", [PACE, APART])
def test_what_a_publish_takes_does_not_grow_with_the_layers(settings):
    """A layer is whole once as it is gathered, and once as it is turned."""
    taken = []
    for layers in (4, 16):
        config = dataclasses.replace(CONFIG, num_layers=layers)
        layout = _layout(1, config=config, settings=settings)
        program = programs(layout)["publish_layers"].lower().compile()
        taken.append(program.memory_analysis().temp_size_in_bytes)
    assert max(taken) <= 2 * 164_992  # 41,248 parameters of 4 bytes
    assert taken[1] - taken[0] <= 512


@pytest.mark.parametrize(
    ("shape", "tensor"),
    [((1, 8, 1), 1), ((1, 8, 1), 2), ((1, 4, 2), 4), ((2, 2, 2), 8)],
)
def test_published_weights_stand_where_the_layout_says(shape, tensor):
    """Whatever parts the trainer's mesh has."""
    mesh = mesh_of(*shape)
    model = Decoder(CONFIG, mesh=mesh, dtype=jnp.float32)
    layout = make_layout(model, slots=16, tensor=tensor, settings=APART)
    params = init_params(model, mesh, 0)
    served = served_params(params, model, layout.model)
    shapes, shardings = abstract_served(layout.model)
    assert jax.tree.map(jnp.shape, served) == jax.tree.map(lambda x: x.shape, shapes)
    leaves = zip(*map(jax.tree.leaves, (served, shardings)), strict=True)
    assert all(x.sharding.is_equivalent_to(sharding, x.ndim) for x, sharding in leaves)
    np.testing.assert_array_equal(served["head"], params["head"])
    for number, layer in enumerate(served[LAYERS]):
        for name in ("o", "up", "mlp_norm") if tensor <= 2 else ("up", "mlp_norm"):
            of_layer = params[LAYERS][name][number]
            np.testing.assert_array_equal(layer[name][0], of_layer)


def test_no_device_gathers_more_of_a_weight_than_its_part():
    """A device of a copy of two gets its half of a weight, and never the other."""
    layout = _layout(2, settings=APART)
    found = _exchanged(layout, "publish_layers")
    gathered = [e for e in found if e[1] == "all-gather"]
    assert max(max(_elements(e[2])) for e in gathered) == 64 * 128 // 2
