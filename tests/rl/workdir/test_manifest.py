"""Which changes a run takes along, and which would make it another run."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from configs import base
from configs.base import from_config
from rl.files import read_rows, replace_rows
from rl.run_spec import validate
from rl.workdir import manifest
from tests.tools.tiny import make_model, make_sums


def _config(folder):
    c = base.get_config()
    c.model.path = str(folder / "base")
    c.data.train = str(folder / "train.jsonl")
    c.data.eval = str(folder / "eval.jsonl")
    c.data.template = "{problem}"
    c.rollout.max_prompt_tokens = 16
    c.rollout.max_response_tokens = 48
    c.rollout.group_size = 4
    c.batch.prompts_per_step = c.batch.prompts_per_update = 4
    c.batch.row_lengths = (64,)
    c.batch.micro_tokens = 1024
    c.mesh.data, c.mesh.fsdp = -1, 1
    return c


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    make_model(folder / "base")
    make_sums(folder / "train.jsonl", 40)
    make_sums(folder / "eval.jsonl", 8)
    return folder


def _identify(config):
    plan = validate(from_config(config))
    return manifest.identify(plan, pathlib.Path(config.model.path))


@pytest.fixture(scope="module")
def first(made):
    return _identify(_config(made))


@pytest.fixture
def workdir(tmp_path, first):
    assert manifest.begin(tmp_path / ".", first, accept_changes=False) == []
    return tmp_path


def _set(key, value):
    return lambda config, _: config.update_from_flattened_dict({key: value})


def _one_weight(config, folder):
    path = folder / "base" / "model.safetensors"
    weights = dict(safetensors.numpy.load_file(path))
    weights["model.norm.weight"] = weights["model.norm.weight"] + np.float32(1e-3)
    safetensors.numpy.save_file(weights, path, metadata={"format": "pt"})


def _rows(change):
    def of_file(config, folder):
        path = folder / "train.jsonl"
        replace_rows(path, change([row for _, row in read_rows(path)]))

    return of_file


def _first_row(**changes):
    return _rows(lambda rows: [{**rows[0], **changes}, *rows[1:]])


def _elsewhere(key, name):
    """The same in another folder."""

    def move(config, folder):
        (folder / "moved").mkdir()
        (folder / name).rename(folder / "moved" / name)
        _set(key, str(folder / "moved" / name))(config, folder)

    return move


def _of_a_tokenizer(config, folder):
    path = folder / "base" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"padding_side": "left"}))


GOES_ON = [
    ("more steps", _set("steps", 400)),
    ("another mesh", _set("mesh.fsdp", 2)),
    ("other problems held out", lambda _, of: make_sums(of / "eval.jsonl", 9)),
    ("a server's memory", _set("rollout.vllm.gpu_memory_utilization", 0.5)),
    ("where the base lies", _elsewhere("model.path", "base")),
    ("where the problems lie", _elsewhere("data.train", "train.jsonl")),
    ("the template's name", _set("data.template", "none")),
]
# With the key that the refusal names.
REFUSED = [
    ("the learning rate", _set("schedule.learning_rate", 1e-5),
     "config.schedule.learning_rate: 1e-06 -> 1e-05"),
    ("the template", _set("data.template", "{problem}="), "data.train: "),
    ("a weight of the base", _one_weight, "base.model.safetensors: "),
    ("a gold answer", _first_row(answer="1"), "data.train: "),
    ("the order of problems", _rows(lambda rows: rows[::-1]),
     " (hash of the training problems, their order, answers and prompts)"),
    ("fewer problems", _rows(lambda rows: rows[:-1]), "data.train: "),
    ("a level", _first_row(level=2), "data.train: "),
    ("the tokenizer's config", _of_a_tokenizer, "base.tokenizer_config.json: "),
    ("the filter", _set("dynamic_sampling.filter", False),
     "config.dynamic_sampling.filter: true -> false"),
    ("the stop tokens", _set("rollout.stop_token_ids", (0, 5)), "data.stop: "),
]  # fmt: skip


@pytest.fixture
def changed(made, tmp_path):
    """The identity of a start after a change."""

    def make(change):
        config = _config(made)
        # Changed in place: where things lie is config too.
        backup = shutil.copytree(made, tmp_path / "backup")
        try:
            change(config, made)
            return _identify(config)
        finally:
            shutil.rmtree(made)
            shutil.copytree(backup, made)

    return make


@pytest.mark.failure(37)
@pytest.mark.parametrize("change", [c for _, c in GOES_ON], ids=[n for n, _ in GOES_ON])
def test_what_may_change_goes_on_and_is_recorded(workdir, changed, change):
    said = manifest.begin(workdir, changed(change), accept_changes=False)
    assert said and all(line.startswith("changed: ") for line in said)
    history = json.loads((workdir / "manifest.json").read_text())["history"]
    assert len(history) == 2 and len(history[1]["changes"]) == len(said)


@pytest.mark.failure(169)
@pytest.mark.failure(37)
@pytest.mark.parametrize(
    "change,message", [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_another_run_is_refused_with_the_difference(workdir, changed, change, message):
    path, now = workdir / "manifest.json", changed(change)
    before = path.read_bytes()
    with pytest.raises(ValueError) as caught:
        manifest.begin(workdir, now, accept_changes=False)
    assert f"{workdir}: holds another run: " in str(caught.value)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_bytes() == before
    # Asked for, it is recorded with both values, and is the run from then on.
    said = manifest.begin(workdir, now, accept_changes=True)
    assert any(message in line for line in said)
    changes = json.loads(path.read_text())["history"][1]["changes"]
    assert any(c["refused"] and c["before"] != c["now"] for c in changes)
    assert manifest.begin(workdir, now, accept_changes=False) == []


@pytest.mark.failure(158)
def test_other_held_out_problems_are_not_compared(workdir, first):
    now = {**first, "data": {**first["data"], "held_out": "0" * 64}}
    (said,) = manifest.begin(workdir, now, accept_changes=False)
    assert said.endswith("; accuracies before and after this change cannot be compared")


@pytest.mark.failure(104)
def test_hidden_files_of_other_programs_are_no_part_of_a_base(made, first):
    hidden = made / "base" / "._model.safetensors"
    hidden.write_bytes(b"\x00\x05\x16\x07")
    try:
        assert _identify(_config(made)) == first
    finally:
        hidden.unlink()


@pytest.mark.failure(37)
@pytest.mark.failure(102)
def test_other_versions_and_rewards_are_shown_and_never_refused(workdir, first):
    now = {**first, "code": {"my:score": {"helper.py": "0" * 64}}}
    now["versions"] = {**first["versions"], "jax": "another"}
    said = sorted(manifest.begin(workdir, now, accept_changes=False))
    assert said[0] == "changed: code.my:score.helper.py: none -> 000000000000"
    assert said[1].startswith("changed: versions.jax: ") and len(said) == 2


@pytest.mark.failure(37)
def test_settings_of_jax_are_part_of_a_run(workdir, made, first):
    assert first["jax"] == {}
    with jax.threefry_partitionable(False):
        now = _identify(_config(made))
        drawn = jax.random.uniform(jax.random.key(0), (3,))
    assert (drawn != jax.random.uniform(jax.random.key(0), (3,))).any()
    message = "holds another run: jax.jax_threefry_partitionable: none -> false;"
    with pytest.raises(ValueError, match=message):
        manifest.begin(workdir, now, accept_changes=False)


@pytest.mark.failure(37)
def test_another_config_is_refused_before_a_base_is_made(workdir, made):
    config = _config(made)
    manifest.check_config(workdir, validate(from_config(config)))
    config.seed = 3
    with pytest.raises(ValueError, match="config.seed: 0 -> 3; give --accept_changes"):
        manifest.check_config(workdir, validate(from_config(config)))


@pytest.mark.failure(37)
@pytest.mark.parametrize("step", ["0", "4"])
def test_checkpoints_of_an_unknown_run_are_not_resumed(workdir, first, step):
    (workdir / "checkpoints" / step).mkdir(parents=True)
    path = workdir / "manifest.json"
    path.unlink()
    with pytest.raises(ValueError, match="the config of the checkpoints is unknown"):
        manifest.begin(workdir, first, accept_changes=False)
    manifest.begin(workdir, first, accept_changes=True)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match="manifest.json: damaged"):
        manifest.begin(workdir, first, accept_changes=False)


@pytest.mark.failure(50)
def test_a_workdir_without_the_checkpoints_of_its_metrics_is_refused(tmp_path):
    rows = [{"step": s, "checkpoint/step": 2 * ((s - 1) // 2)} for s in range(1, 7)]
    replace_rows(tmp_path / "metrics.jsonl", rows)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "chec')
    with pytest.raises(ValueError, match="the checkpoint of step 4, but there is none"):
        manifest.check_checkpoints(tmp_path)
    folder = tmp_path / "checkpoints"
    (folder / "2").mkdir(parents=True)
    message = "of step 4, but the newest is of step 2. Restore that"
    with pytest.raises(ValueError, match=message):
        manifest.check_checkpoints(tmp_path)
    (folder / "4.damaged").mkdir()  # set aside by a start that a kill cut short
    manifest.check_checkpoints(tmp_path)
    (folder / "4.damaged").rename(folder / "4")
    manifest.check_checkpoints(tmp_path)


@pytest.mark.failure(93)
def test_a_folder_that_is_not_a_runs_is_refused(tmp_path, workdir):
    manifest.check_folder(workdir)
    new = tmp_path / "new"
    manifest.check_folder(new)
    (new / "hf").mkdir(parents=True)
    (new / "notes.txt").touch()
    manifest.check_folder(new)
    (new / "hf" / "model.safetensors").touch()  # the base of this run, for example
    with pytest.raises(ValueError, match="new: is not the folder .* has hf, which"):
        manifest.check_folder(new)
