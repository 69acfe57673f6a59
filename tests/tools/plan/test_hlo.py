"""Compiled texts are read as XLA prints them, for all three kinds of device."""

import pathlib

import jax
import jax.numpy as jnp
import pytest

from tools.plan import hlo

HERE = pathlib.Path(__file__).parent
# A loop of four trips with a gather and a product in it, a fused slice, a kernel.
GPU = (HERE / "gpu.txt").read_text()
# A TPU's loop does not say its count: here a counter goes from 2 to 10 by 2. A kernel's
# attributes run over three lines, and a collective runs behind two fusions.
TPU = (HERE / "tpu.txt").read_text()


def test_collectives_of_a_gpu_program():
    gather, reduce = sorted(hlo.read(GPU, trips=(1,)).collectives)
    assert gather == ("all-gather", 128, 4, 2, 2)
    # Half of the array comes from the other device, four times.
    assert gather.sent == 4 * 64
    assert reduce == ("all-reduce", 256, 1, 4, 4)
    assert reduce.sent == 2 * 256 * 3 / 4


def test_a_slice_of_a_stack_is_not_the_stack():
    """In the loop: 128 bytes cut out of 2,048; 64 written; the all-gather's 64 and 128;
    the product's 64, 128 and 256; the comparison's 9."""
    in_loop = (4 + 128 + 64) + (64 + 128) + (64 + 128 + 256) + 9
    outside = (64 + 256) + (256 + 256)
    reading = hlo.read(GPU, trips=(1,))
    assert reading.hbm_bytes == 4 * in_loop + outside
    assert reading.kernel_calls == 1
    # The kernel outside of the loop is passed 64 bytes and writes 256.
    quarter = hlo.read(GPU, trips=(1,), kernel_share=0.25)
    assert reading.hbm_bytes - quarter.hbm_bytes == 0.75 * (64 + 256)


def test_a_small_intermediate_stays_in_the_cache():
    """With 512 bytes of cache, arrays of up to 128 that do not leave their computation
    are free: the fused slice's result, and the all-gather's."""
    plain, cached = (hlo.read(GPU, trips=(1,), cache=c).hbm_bytes for c in (0, 512))
    assert plain - cached == 4 * (64 + 64 + 128 + 128)


def test_a_tpus_loop_is_counted_by_its_counter():
    read = hlo.read(TPU, trips=(1,))
    (gather,) = read.collectives
    assert (gather.kind, gather.times) == ("all-gather", 4)
    assert read.kernel_calls == 1


def test_a_loop_of_unknown_length_takes_the_given_trips():
    text = GPU.replace('{"known_trip_count":{"n":"4"}}', "{}")
    text = text.replace("%four = s32[] constant(4)", "%four = s32[] parameter(1)")
    gather, _ = sorted(hlo.read(text, trips=(7,)).collectives)
    assert gather.times == 7


def test_an_empty_text_has_nothing():
    assert hlo.read("", trips=(1,)) == ([], 0, 0)


# As jax 0.11.2 prints them for a GPU, without attributes that nothing reads.
ASYNC_UPDATE = """
%update (a: f32[100,8], b: f32[4,8], i: s32[]) -> f32[100,8] {
  %a = f32[100,8]{1,0} parameter(0)
  %b = f32[4,8]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %z = s32[] constant(0)
  ROOT %u = f32[100,8]{1,0} dynamic-update-slice(%a, %b, %i, %z)
}

ENTRY %main (x: f32[100,8], y: f32[4,8], j: s32[]) -> f32[100,8] {
  %x = f32[100,8]{1,0} parameter(0)
  %y = f32[4,8]{1,0} parameter(1)
  %j = s32[] parameter(2)
  %s = ((f32[100,8], f32[4,8], s32[]), f32[100,8], u32[]) fusion-start(%x, %y, %j), calls=%update
  ROOT %d = f32[100,8]{1,0} fusion-done(%s)
}
"""  # noqa: E501
SCATTER = """
%sum (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] COMBINER
}

%put (t: f32[1000,8], n: s32[4], r: f32[4,8]) -> f32[1000,8] {
  %t = f32[1000,8]{1,0} parameter(0)
  %n = s32[4]{0} parameter(1)
  %r = f32[4,8]{1,0} parameter(2)
  ROOT %g = f32[1000,8]{1,0} scatter(%t, %n, %r), update_window_dims={1}, to_apply=%sum
}

ENTRY %main (t: f32[1000,8], n: s32[4], r: f32[4,8]) -> f32[1000,8] {
  %t = f32[1000,8]{1,0} parameter(0)
  %n = s32[4]{0} parameter(1)
  %r = f32[4,8]{1,0} parameter(2)
  ROOT %f = f32[1000,8]{1,0} fusion(%t, %n, %r), kind=kInput, calls=%put
}
"""


@pytest.mark.parametrize(
    "text,moved",
    [
        (ASYNC_UPDATE, 128 + 4 + 128),  # four rows read, four written
        # Additions read what they add to.
        (SCATTER.replace("COMBINER", "add(%p, %q)"), 128 + 16 + 128 + 128),
        (SCATTER.replace("%s = f32[] COMBINER", "%q = f32[] parameter(1)"), 272),
    ],
    ids=["async-update", "scatter-add", "scatter"],
)
def test_untouched_elements_are_not_counted(text, moved):
    assert hlo.read(text, trips=(1,)).hbm_bytes == moved


def test_a_program_compiled_here_moves_what_is_counted_by_hand():
    """16 steps over a table of 4 MB and a stack of 64 MB.

    Each gathers 64 rows of 4 KB (read, written), multiplies them by a matrix of 4 MB
    that it slices from the stack (rows read, matrix read, product written), and adds
    the product to 64 rows of the result (read, added to, written).
    """

    def program(table, stack, ids):
        def body(i, out):
            rows = table.at[ids + i].get(mode="clip")
            product = rows @ jax.lax.dynamic_index_in_dim(stack, i, keepdims=False)
            old = jax.lax.dynamic_slice_in_dim(out, 64 * i, 64)
            return jax.lax.dynamic_update_slice_in_dim(out, old + product, 64 * i, 0)

        return jax.lax.fori_loop(0, 16, body, jnp.zeros((1024, 1024)))

    shapes = [
        jax.ShapeDtypeStruct((1024, 1024), jnp.float32),
        jax.ShapeDtypeStruct((16, 1024, 1024), jnp.float32),
        jax.ShapeDtypeStruct((64,), jnp.int32),
    ]
    text = jax.jit(program).lower(*shapes).compile().as_text()
    rows, matrix = 64 * 1024 * 4, 1024 * 1024 * 4
    by_hand = matrix + 16 * (2 * rows + (rows + 2 * matrix + matrix + rows) + 3 * rows)
    assert hlo.read(text, trips=(1,)).hbm_bytes == pytest.approx(by_hand, rel=0.1)
