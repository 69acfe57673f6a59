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
    "hardware,target,trainers,shape,rows",
    [
        ("h100-8", "h100:8", 8, (1, 8, 1), None),
        ("h100-4+4", "h100:8", 4, (1, 4, 1), None),
        ("v5p-16", "v5p:2x2x2", 8, (1, 8, 1), None),
        ("v5e-16", "v5e:4x4", 16, None, 16),
    ],
)
def test_the_papers_run_has_its_devices(hardware, target, trainers, shape, rows):
    work = make_workload(paper_config(hardware), parse_target(target))
    assert work.trainer.count == trainers
    assert shape in (None, work.mesh_shape) and rows in (None, work.rows)


def test_a_known_model_has_its_positions():
    # As in each config.json.
    positions = {"2.5-3B": 32_768, "2.5-7B": 131_072, "2.5-Math-7B": 4_096}
    for name, count in positions.items():
        path = f"Qwen/Qwen{name}"
        assert architecture(paper_config(model__path=path)).max_positions == count


@pytest.mark.parametrize(
    "target,values,message",
    [
        (
            "v5e:4x4",
            {},
            "config.batch.micro_tokens=32768: must be at least 65536 = 4096"
            " (tokens of the longest row) x 16 (shards of the batch)",
        ),
        (
            "h100:8",
            {"rollout__backend": "vllm"},
            "config.mesh={'data': 1, 'fsdp': -1, 'tensor': 1} with"
            " config.rollout.backend='vllm': does not say which devices train; set all"
            " three sizes",
        ),
        (
            "h100:8",
            {"rollout__backend": "vllm", "mesh__fsdp": 8},
            "config.mesh={'data': 1, 'fsdp': 8, 'tensor': 1}: leaves no device of"
            " h100:8 for vLLM's servers; lower the sizes, or use a larger --target",
        ),
        (
            "v5e:4x4",
            {"rollout__backend": "vllm", "mesh__fsdp": 8},
            "--target=v5e:4x4: a trainer cannot use 8 of these devices; set config.mesh"
            " so that it uses all of a slice, whole nodes of GPUs, or part of one node",
        ),
    ],
)
def test_an_impossible_run_is_an_error(target, values, message):
    with pytest.raises(ValueError) as caught:
        make_workload(paper_config(**values), parse_target(target))
    assert str(caught.value) == message
