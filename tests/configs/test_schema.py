"""The config is held to the signatures that take it: a line for each thing wrong."""

import importlib
import json
import re
import typing

import pytest

from configs import base, quickstart
from configs.base import from_config
from configs.checks import check_config
from configs.schema import Range, call, config_json
from tests.other_processes import ROOT

ALARMS = ", ".join(typing.get_args(base.AlarmName))
RUNS = sorted(
    path.stem
    for path in (ROOT / "configs").glob("[!_]*.py")
    if re.search(r"^(def )?get_config\b", path.read_text(), re.M)
    and path.stem not in ("curate", "ablations")
)


@pytest.mark.parametrize("name", RUNS)
def test_every_config_of_ours_fits(name):
    from_config(importlib.import_module(f"configs.{name}").get_config())


@pytest.mark.failure(154)
@pytest.mark.failure(118)
@pytest.mark.failure(62)
@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "key,value,wrong",
    [
        ("objective.aggregation", "mean", "be one of token, group, sequence, constant"),
        ("objective.correction_cap", 0.5, "be at least 1"),
        ("rollout.group_size", 1, "be at least 2"),
        ("rollout.temperature", 0.0, "be above 0"),
        ("batch.ppo_epochs", 0, "be at least 1"),
        ("batch.row_lengths", (), "have at least one entry, a length in tokens"),
        ("batch.row_lengths", (4096, 0), "have valid entries: 0 must be at least 1"),
        ("batch.row_lengths", ("4096",),
         "have valid entries: '4096' must be of type int"),
        ("batch.row_lengths", "4096", "be a list"),
        ("optimizer", None, "be a dict"),
        ("model.lora", (), "be a dict"),
        ("rollout.stop_token_ids", ("<|im_end|>",),
         "have valid entries: '<|im_end|>' must be of type int"),
        ("log.sinks", "wandb", "be a list"),
        ("dynamic_sampling.filter", 1, "be of type bool"),
        ("sampling.explore", 0.0, "lie in (0, 1]"),
        ("optimizer.moments_dtype", "float16", "be one of float32, bfloat16"),
        ("schedule.learning_rate", float("inf"), "be finite"),
        ("objective.entropy_bonus", float("nan"), "be finite"),
        ("reward.right_from", float("nan"), "be finite"),
        ("mesh.cpu_devices", -1, "be at least 0"),
        ("rollout.vllm.probe_tolerance", -0.1, "be at least 0"),
        ("rollout.vllm.gpu_memory_utilization", 90.0, "lie in [0, 1]"),
        ("optimizer.b2", 1.0, "lie in [0, 0.999999]"),
        ("alarms.stop_on", ("gap",),
         f"have valid entries: 'gap' must be one of {ALARMS}"),
        ("data.unreadable", 2.0, "lie in [0, 1]"),
        ("log.samples", 9, "lie in [0, 8]"),
        ("seed", -1, "be at least 0"),
    ],
)  # fmt: skip
def test_a_value_that_fits_nowhere_is_named_with_what_it_must_be(key, value, wrong):
    config = base.get_config()
    with config.ignore_type():
        config.update_from_flattened_dict({key: value})
    with pytest.raises(ValueError) as caught:
        check_config(from_config(config))
    assert str(caught.value) == f"config.{key}={value!r}: must {wrong}"


_DECAY = (
    "needs config.schedule.decay_updates, the number of updates between the end of the"
    " warm-up and a learning rate of 0"
)


@pytest.mark.failure(33)
@pytest.mark.failure(76)
@pytest.mark.parametrize(
    "settings,why",
    [
        ({"sampling.policy": "signal", "dynamic_sampling.filter_on": "reward"},
         "needs config.dynamic_sampling.filter=True and filter_on 'correct' or 'auto',"
         " not filter=True and filter_on='reward'"),
        ({"reward.shuffle": True, "dynamic_sampling.carry": True},
         "cannot be combined with config.dynamic_sampling.carry=True, because groups of"
         " a round may then end in different steps; set one of them to False"),
        ({"objective.reset_every": 5, "model.lora.rank": 4},
         "adapters cannot replace the weights of the reference model; set it to 0, or"
         " set config.model.lora.rank=0"),
        ({"schedule.decay": "linear"}, _DECAY),
        ({"schedule.decay": "cosine"}, _DECAY),
        ({"schedule.decay_updates": 394, "schedule.decay": "cosine"},
         "the learning rate would be 0 after 399 of up to 400 updates; set at least"
         " 395, or lower config.steps=200"),
    ],
)  # fmt: skip
def test_settings_that_exclude_each_other_are_one_line(settings, why):
    config = quickstart.get_config()
    config.update_from_flattened_dict(settings)
    with pytest.raises(ValueError) as caught:
        check_config(from_config(config))
    key, value = next(iter(settings.items()))
    assert str(caught.value) == f"config.{key}={value!r}: {why}"


@pytest.mark.failure(155)
def test_keys_of_a_mapping_may_have_several_types():
    config = base.get_config()
    config.curriculum.stages = ({"name": "a", "levels": {1: 0.5, "2": 0.5}},)
    typed = from_config(config)
    assert typed.curriculum.stages[0].levels == {"1": 0.5, "2": 0.5}
    assert json.loads(config_json(typed))["curriculum"]["stages"][0]["name"] == "a"


def test_a_key_that_is_not_there_cannot_be_set():
    config = base.get_config()
    with pytest.raises(AttributeError, match="prompt_per_step"):
        config.batch.prompt_per_step = 128
    with config.unlocked():
        config.batch.prompt_per_step = 128
    with pytest.raises(ValueError) as caught:
        check_config(from_config(config))
    assert str(caught.value).startswith("config.batch.prompt_per_step=128: unknown key")


@pytest.mark.failure(130)
def test_a_deleted_key_does_not_take_its_default():
    config = quickstart.get_config()
    with config.unlocked():
        del config.data["eval"]
    message = "^config.data.eval: is missing; set single keys of a section"
    with pytest.raises(ValueError, match=message):
        from_config(config)


def test_a_section_is_called_whole():
    def make(*, size: int, rate: float = 0.5, name):
        return size, rate, name

    assert call(make, "part", {"size": 2}, name="x") == (2, 0.5, "x")
    for values, message in (
        ("size=2", "='size=2': must be a dict"),
        ({"size": "2"}, ".size='2': must be of type int"),
        ({"size": True}, ".size=True: must be of type int"),
        ({"size": 2, "rat": 1},
         ".rat=1: unknown key; remove it (make has no such argument)"),
        ({"rate": 1},
         ": missing a required argument: 'size'; see the arguments of make"),
    ):  # fmt: skip
        with pytest.raises(ValueError) as caught:
            call(make, "part", values, name="x")
        # Python 3.12 says more of it: "a required keyword-only argument".
        said = str(caught.value).replace("keyword-only ", "")
        assert said == f"config.part{message}"


def test_ranges():
    assert 0 in Range(0, 1) and 1 in Range(0, 1) and 1.1 not in Range(0, 1)
    assert 0 not in Range(0, open=True) and float("nan") not in Range(0)
    assert float("inf") not in Range(0)


def test_a_function_with_any_keywords_takes_any_argument():
    def problems(size: int, **others):
        return size, others

    assert call(problems, "data", {"size": 2, "seed": 1}) == (2, {"seed": 1})
    with pytest.raises(ValueError, match="config.data.size='x': must"):
        call(problems, "data", {"size": "x", "seed": 1})
