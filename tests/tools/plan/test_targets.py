"""Targets are read strictly; an impossible one is a one-line error."""

import pytest

from tests.tools.plan.paper import paper_config
from tools.plan.architectures import architecture
from tools.plan.targets import parse_target
from tools.plan.workload import make_workload


def test_a_target_has_devices():
    counts = {"v5e:4x4": 16, "v5p:2x2x2": 8, "h100:8": 8, "h200:2x8": 16, "b200:1x8": 8}
    for text, count in counts.items():
        target = parse_target(text)
        assert target.count == count and parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text,message",
    [
        ("v7:4x4", "unknown chip; use one of v5e, v5p, v6e, a100, h100, h200, b200"),
        ("h100", "give a shape, as in h100:2x8"),
        ("v5p:", "give a shape, as in v5p:2x2x2"),
        ("v5e:4x0", "give a shape, as in v5e:2x2"),
        ("v5p:4x4", "give a shape, as in v5p:2x2x2"),
        ("h100:2x2x2", "give a shape, as in h100:2x8"),
    ],
)
def test_a_wrong_target_is_an_error(text, message):
    with pytest.raises(ValueError) as caught:
        parse_target(text)
    assert str(caught.value) == f"--target={text}: {message}"


@pytest.mark.parametrize(
    "hardware,target,shape,rows",
    [
        ("h100-8", "h100:8", (1, 8, 1), 32),
        ("h100-4+4", "h100:4", (1, 4, 1), 16),
        ("v5p-16", "v5p:2x2x2", (1, 8, 1), 32),
        ("v5e-16", "v5e:4x4", (1, 16, 1), 16),
    ],
)
def test_the_papers_run_has_its_devices(hardware, target, shape, rows):
    work = make_workload(paper_config(hardware), parse_target(target))
    assert (work.mesh_shape, work.rows) == (shape, rows)


def test_a_known_model_has_its_positions():
    # As in each config.json.
    positions = {"2.5-0.5B": 32_768, "2.5-7B": 131_072, "2.5-Math-7B": 4_096}
    for name, count in positions.items():
        path = f"Qwen/Qwen{name}"
        assert architecture(paper_config(model__path=path)).max_positions == count


@pytest.mark.parametrize(
    "target,fsdp,message",
    [
        ("v5e:4x4", -1, "config.batch.micro_tokens=32768: must be at least 65536 = 4096"
         " (tokens of the longest row) x 16 (shards of the batch)"),
        ("h100:8", 4,
         "--target=h100:8: config.mesh data=1 fsdp=4 tensor=1: the product is 4, but"
         " the number of devices is 8; check that JAX finds the accelerators (on a"
         " CPU: check XLA_FLAGS), or set one size to -1"),
    ],
)  # fmt: skip
def test_an_impossible_run_is_an_error(target, fsdp, message):
    with pytest.raises(ValueError) as caught:
        make_workload(paper_config(mesh__fsdp=fsdp), parse_target(target))
    assert str(caught.value) == message
