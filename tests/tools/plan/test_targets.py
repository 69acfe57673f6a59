"""Targets are read strictly, and what cannot be asked for is said in a line."""

import pytest

from configs import compass_thinker_7b
from tools.plan.architectures import architecture
from tools.plan.targets import CHIPS, parse_target
from tools.plan.workload import make_workload


def _config(hardware="", **values):
    config = compass_thinker_7b.get_config(hardware)
    config.update_from_flattened_dict(
        {name.replace("__", "."): value for name, value in values.items()}
    )
    return config


@pytest.mark.parametrize(
    "text,count",
    [
        ("v5e:4x4", 16),
        ("v5p:2x2x2", 8),
        ("v6e:16x16", 256),
        ("h100:8", 8),
        ("h200:2x8", 16),
        ("b200:1x8", 8),
    ],
)
def test_a_target_has_so_many_devices(text, count):
    target = parse_target(text)
    assert target.count == count
    assert parse_target(str(target)) == target


def test_a_group_beyond_its_node_goes_over_the_network():
    gpus = parse_target("h200:2x8")
    assert (gpus.link_rate(8), gpus.link_rate(16)) == (450e9, 50e9)
    # A slice's links do not end at a host.
    assert parse_target("v5e:4x4").link_rate(16) == 100e9


@pytest.mark.parametrize(
    "text,said",
    [
        ("v7:4x4", "no such chip; there are v5e, v5p, v6e, a100, h100, h200, b200"),
        ("h100", "give a shape, as in h100:2x8"),
        ("v5p:", "give a shape, as in v5p:2x2x2"),
        ("v5e:4x0", "give a shape, as in v5e:2x2"),
        ("v5e:4x4x4", "the shape of v5e has 2 sizes"),
        ("v5p:4x4", "the shape of v5p has 3 sizes"),
        ("h100:2x2x2", "the shape of h100 has NODESxGPUS"),
    ],
)
def test_a_target_that_is_none_is_named(text, said):
    with pytest.raises(ValueError) as caught:
        parse_target(text)
    assert str(caught.value) == f"--target={text}: {said}"


def test_memory_is_what_the_compilers_say():
    assert CHIPS["v5e"].memory == 16911433728  # "of 15.75G hbm"
    assert parse_target("v5e:4x4").usable / 2**30 == pytest.approx(14.96, abs=0.01)
    assert CHIPS["h100"].memory == 84942979072


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
    work = make_workload(_config(hardware), parse_target(target))
    assert work.trainer.count == trainers
    assert shape in (None, work.mesh_shape) and rows in (None, work.rows)
    assert work.servers == work.target.count - trainers
    assert work.updates_per_step == 16


@pytest.mark.parametrize(
    "name,positions",
    [
        # As in each config.json: the larger bases were made for more than the chats.
        ("Qwen/Qwen2.5-3B", 32_768),
        ("Qwen/Qwen2.5-7B", 131_072),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
        ("Qwen/Qwen2.5-Math-7B", 4_096),
        ("Qwen/Qwen3-8B-Base", 32_768),
        ("Qwen/Qwen3-32B", 40_960),
        ("meta-llama/Llama-3.2-1B", 131_072),
    ],
)
def test_a_model_that_is_known_has_the_positions_it_was_made_for(name, positions):
    assert architecture(_config(model__path=name)).max_positions == positions


@pytest.mark.parametrize(
    "target,values,said",
    [
        (
            "v5e:4x4",
            {"mesh__fsdp": 3},
            "config.mesh on v5e:4x4: mesh data=1 fsdp=3 tensor=1 needs 3 devices,"
            " there are 16",
        ),
        (
            "v5e:4x4",
            {},
            "config.batch.micro_tokens=32768: less than one row of 4096 tokens on each"
            " of 16 devices",
        ),
        (
            "h100:8",
            {"mesh__fsdp": 1, "mesh__tensor": 8},
            "['layers']['k']: dimension 'kv_heads' of size 4 does not divide over 8"
            " devices of mesh axis tensor",
        ),
        (
            "h100:8",
            {"rollout__backend": "vllm"},
            "config.mesh={'data': 1, 'fsdp': -1, 'tensor': 1} beside"
            " config.rollout.backend='vllm' leaves open which devices train: give all"
            " three sizes, or config.rollout.vllm.devices",
        ),
        (
            "h100:8",
            {"rollout__backend": "vllm", "mesh__fsdp": 8},
            "config.mesh={'data': 1, 'fsdp': 8, 'tensor': 1}: a trainer on 8 of the 8"
            " devices of h100:8 leaves none to vLLM's servers",
        ),
        (
            "v5e:4x4",
            {"rollout__backend": "vllm", "mesh__fsdp": 8},
            "a trainer on 8 chips of v5e:4x4: no such part",
        ),
        (
            "h100:8",
            {
                "rollout__max_response_tokens": 8192,
                "batch__row_lengths": (9216,),
                "batch__micro_tokens": 8 * 9216,
            },
            "config.rollout.max_prompt_tokens=1024 +"
            " config.rollout.max_response_tokens=8192 exceed the model's"
            " max_position_embeddings=4096",
        ),
    ],
)
def test_a_run_that_cannot_be_is_one_line(target, values, said):
    with pytest.raises(ValueError) as caught:
        make_workload(_config(**values), parse_target(target))
    assert str(caught.value) == said
