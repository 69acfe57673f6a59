"""Compiled texts are read as XLA prints them, for both kinds of accelerator."""

import pathlib

from tools.plan import hlo

HERE = pathlib.Path(__file__).parent
# A loop of four trips with a gather and a product in it, a fused slice, a kernel.
GPU = (HERE / "gpu.txt").read_text()
# A TPU's loop says no count: here a counter goes from 2 to 10 by 2. A kernel's
# attributes run over three lines, and a collective runs behind two fusions.
TPU = (HERE / "tpu.txt").read_text()


def _read(text, trips=(1,), **given):
    def is_weight(kind, array, place):
        return "layers" in place

    return hlo.read(text, is_weight=is_weight, trips=trips, **given)


def test_collectives_of_a_gpu_program():
    gather, reduce = sorted(_read(GPU).collectives, key=lambda c: c.kind)
    assert (gather.kind, gather.bytes, gather.times) == ("all-gather", 128, 4)
    assert gather.in_loop and gather.of_weight
    assert (gather.devices, gather.reach) == (2, 2)
    # Half of the whole comes from the other, four times.
    assert gather.sent == 4 * 64
    assert (reduce.kind, reduce.bytes, reduce.times) == ("all-reduce", 256, 1)
    assert not reduce.in_loop and not reduce.of_weight
    assert (reduce.devices, reduce.reach) == (4, 4)
    assert reduce.sent == 2 * 256 * 3 / 4


def test_operations_and_kernels_of_a_gpu_program():
    read = _read(GPU)
    assert read.flops == 4 * 2 * 8 * 16 * 4
    assert read.kernel_calls == 1


def test_a_slice_of_a_stack_is_not_the_stack():
    """In the loop: 128 bytes cut out of 2,048, not these; 64 written; the gather's 64
    and 128; the product's 64, 128 and 256; the comparison's 9."""
    in_loop = (4 + 128 + 64) + (64 + 128) + (64 + 128 + 256) + 9
    outside = (64 + 256) + (256 + 256)
    assert _read(GPU).hbm_bytes == 4 * in_loop + outside


def test_of_what_a_kernel_is_given_it_may_read_a_part():
    """The kernel outside the loop is given 64 bytes and writes 256."""
    whole, quarter = (_read(GPU, kernel_share=s).hbm_bytes for s in (1.0, 0.25))
    assert whole - quarter == 0.75 * (64 + 256)


def test_a_tpus_loop_is_counted_by_its_counter():
    read = _read(TPU)
    (gather,) = read.collectives
    assert (gather.kind, gather.times, gather.in_loop) == ("all-gather", 4, True)
    assert read.kernel_calls == 1
    assert read.flops == 4 * 2 * 8 * 8 * 128


def test_a_batch_that_is_an_axis_of_a_convolution_is_counted_once():
    """Of 8 x 8 places and kernels 8 meet an entry; the other 56 meet padding."""
    rest = ", window={size=8 stride=7 pad=0_0 lhs_dilate=8}, dim_labels=0bf_0io->0bf"
    result = hlo.Array("bf16", (8, 16, 32), 0)
    i = hlo.Instruction("v", (result,), "convolution", (), rest, False, "")
    flops = hlo._convolution_flops(i, (8, 16, 64), (8, 64, 32))
    assert flops == 8 * 2 * 16 * 64 * 32


def test_a_loop_of_unknown_length_takes_what_it_is_told():
    text = GPU.replace('{"known_trip_count":{"n":"4"}}', "{}")
    text = text.replace("%four = s32[] constant(4)", "%four = s32[] parameter(1)")
    assert _read(text, trips=(7,)).flops == 7 * 2 * 8 * 16 * 4


def test_of_a_program_that_was_refused_nothing_is_read():
    read = _read("")
    assert (read.collectives, read.flops, read.hbm_bytes) == ((), 0, 0)
