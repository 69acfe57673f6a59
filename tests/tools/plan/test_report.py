"""A program's memory, FLOPs and least time, and how a plan prints them."""

import pytest

from tests.tools.plan.paper import paper_config
from tools.plan.compiling import Compiled
from tools.plan.hlo import Collective
from tools.plan.programs import Resident
from tools.plan.report import describe, make_report, memory
from tools.plan.targets import parse_target
from tools.plan.workload import make_workload

GIB = 2**30


@pytest.fixture(scope="module")
def work():
    config = paper_config("h100-8", model__remat="full")
    return make_workload(config, parse_target("h100:8"))


def test_resident_arrays_count_for_every_program():
    sizes = {"masters": 10, "moments": 20, "gradients": 10, "reference": 5}
    in_place = dict(arguments=30, outputs=20, aliased=20)
    accumulate = Compiled(name="accumulate", **in_place, temporary=40)
    # 40, and 10 of arguments that are not listed.
    assert memory(sizes, accumulate) == sizes | {"temporary": 50}
    # A program that takes one layer of many leaves the others where they are.
    publish = Compiled(name="publish_layers", arguments=1, outputs=1)
    parts = memory({"masters": 10, "moments": 20, "served": 5}, publish)
    assert parts == {"masters": 10, "moments": 20, "served": 5, "temporary": 0}
    refused = Compiled(name="score", exceeds=100)
    assert sum(memory(sizes, refused).values()) == 100 + 20 + 5


def test_flops_of_a_micro_batch_by_hand(work):
    """2 x 6.525e9 weights of the layers for each token, three times and once more but
    for the last product (1.901e9 weights); the head's 0.545e9 four times. Attention in
    28 layers of 28 heads of 128: two products over half of 4,096 positions, 4.5 times.
    """
    layers, down, head = 28 * 233_046_016, 28 * 67_895_296, 152064 * 3584
    products = 2 * (4 * layers - down + 4 * head)
    attention = 2 * 28 * 28 * 128 * 4096
    assert work.flops("accumulate", 1, 4096) == products + 4.5 * attention
    assert work.flops("score", 1, 4096) == 2 * (layers + head) + attention
    of_decode = 2 * (layers + head) + 2 * 2 * 28 * 28 * 128 * 1000
    assert work.flops("decode", 1, 1000) == of_decode


TEXT = """
ENTRY %main (x: bf16[8,1000000]) -> bf16[64,1000000] {
  %x = bf16[8,1000000]{1,0} parameter(0)
  ROOT %g = bf16[64,1000000]{1,0} all-gather(%x), replica_groups={{0,1,2,3,4,5,6,7}}
}
"""


def test_the_longest_part_bounds_a_program(work):
    sizes = {"masters": 10 * GIB, "moments": 20 * GIB, "gradients": 10 * GIB}
    resident = Resident(sizes, {"score": 1e6})
    compiled = [
        Compiled(name="score", text=TEXT, arguments=10 * GIB, temporary=GIB),
        Compiled(name="accumulate", text=TEXT, temporary=60 * GIB),
    ]
    plan = make_report(work, resident, compiled, context=0)
    score, accumulate = plan["programs"].values()
    assert score["seconds"]["compute"] == work.flops("score", 1e6, 4096) / 989e12
    assert score["bound_by"] == "compute"
    moved = {"memory": (16e6 + 128e6) / 3352320000000, "links": 112e6 / 450e9}
    assert accumulate["seconds"] == {"compute": 0} | moved
    assert accumulate["bound_by"] == "links"
    assert score["fits"] and not accumulate["fits"] and not plan["fits"]
    text = describe(plan).splitlines()
    assert text[-1] == (
        "It does not fit: accumulate needs 100.00 GiB of each device, but only 72.78"
        " are usable."
    )
    assert text[1] == (
        "Memory of each device: 72.78 GiB usable of 79.11; during a program, masters"
        " 10.00, moments 20.00, gradients 10.00"
    )


def test_a_group_beyond_its_node_uses_the_network():
    gpus = parse_target("h200:2x8")
    assert (gpus.link_rate(8), gpus.link_rate(16)) == (450e9, 50e9)
    # A slice's links do not end at a host.
    assert parse_target("v5e:4x4").link_rate(16) == 100e9
    assert Collective("all-gather", 16, 2, 16, 16).sent == 2 * 15
    assert Collective("collective-permute", 16, 2, 16, 16).sent == 2 * 16
