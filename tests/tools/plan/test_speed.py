"""Times by hand: what a step is made of, and how its phases overlap."""

import dataclasses

import numpy as np
import pytest

from configs import compass_thinker_7b
from tools.plan import speed
from tools.plan.hlo import Collective, Reading
from tools.plan.lengths import read_lengths
from tools.plan.targets import parse_target
from tools.plan.workload import make_workload


@pytest.fixture(scope="module")
def work():
    config = compass_thinker_7b.get_config("h100-8")
    config.model.remat = "full"
    return make_workload(config, parse_target("h100:8"))


def _collective(reach):
    return Collective(
        kind="all-gather",
        bytes=16 * 10**9,
        times=1,
        in_loop=True,
        of_weight=True,
        devices=16,
        reach=reach,
    )


def test_weights_and_positions_of_7b_have_their_known_sizes(work):
    # 7,615,616,512 parameters, of which norms and biases are 333,312.
    assert speed.weight_bytes(work) == 2 * (7_615_616_512 - 333_312)
    assert speed.position_bytes(work) == 57_344


def test_operations_of_a_micro_batch_by_hand(work):
    """2 x 6.525e9 weights of the layers for each token, 3 times and once more but for
    the last product (1.901e9 weights); the head's 0.545e9 four times."""
    flops = speed.update_flops(work, 1, 1)
    layers, down, head = 28 * 233_046_016, 28 * 67_895_296, 152064 * 3584
    assert flops == 2 * (4 * layers - down + 4 * head)


def test_a_roofline_is_its_longest_part():
    reading = Reading(
        collectives=(_collective(8),),
        kernel_calls=0,
        flops=989e12,
        hbm_bytes=3352320000000 / 2,
    )
    line = speed.roofline(reading, parse_target("h100:8"))
    assert (line.compute, line.memory) == (1.0, 0.5)
    # 15 of 16 GB come over 450 GB/s.
    assert line.links == pytest.approx(15 / 450)
    assert (line.bound, line.by) == (1.0, "compute")
    # Beyond a node they go over the network.
    reading = dataclasses.replace(reading, collectives=(_collective(16),))
    line = speed.roofline(reading, parse_target("h200:2x8"))
    assert line.links == pytest.approx(15 / 50)


def test_servers_read_their_weights_and_what_is_in_the_cache():
    """15.2 GB of weights and 57,344 bytes a position, at 3.35 TB/s."""
    config = compass_thinker_7b.get_config("h100-4+4")
    work = make_workload(config, parse_target("h100:8"))
    lengths = read_lengths("math", longest=3072)
    found = speed.served_sampling(work, lengths, 0.0)
    assert (found.samplers, found.slots, found.how) == (4, 255, "computed")
    assert found.fixed == pytest.approx(15_230_566_400 / 3352320000000)
    assert found.position == pytest.approx(57_344 / 3352320000000)
    # Two operations for each of 6.525e9 weights.
    assert found.prefill == pytest.approx(2 * 28 * 233_046_016 / 989e12)
    # All of them are seen to make 40,000 tokens in a second, full as they are.
    given = speed.served_sampling(work, lengths, 40_000.0)
    full = given.fixed + given.position * lengths.context * 255
    assert 4 * 255 / full == pytest.approx(40_000)
    assert given.position / given.fixed == pytest.approx(found.position / found.fixed)


def test_lengths_of_a_run_have_its_mean_and_tail(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "length/all_mean": 600.0, "length/all_p95": 1800.0,'
        ' "sampling/solve_all": 0.2, "sampling/solve_none": 0.4,'
        ' "speed/sampling_tokens": 5000.0}\n'
    )
    lengths = read_lengths(str(path), longest=100_000)
    assert lengths.accepted == pytest.approx(0.4) and lengths.rate == 5000
    assert lengths.mean == pytest.approx(600, rel=0.06)
    assert np.quantile(lengths.completions, 0.95) == pytest.approx(1800, rel=0.06)
    assert read_lengths("math", longest=3072).completions.max() == 3072


@pytest.mark.parametrize("text,said", [("nosuch", "neither a file"), (None, "no step")])
def test_lengths_that_are_none_are_one_line(tmp_path, text, said):
    empty = tmp_path / "metrics.jsonl"
    empty.write_text("")
    with pytest.raises(ValueError, match=said):
        read_lengths(text or str(empty), longest=100)
