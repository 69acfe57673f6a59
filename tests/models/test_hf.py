"""Hugging Face folders: bit-exact round trips, streaming, refusals."""

import collections
import concurrent.futures
import errno
import fcntl
import json
import os
import pathlib
import shutil
import threading
import time
import weakref

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from models import hf, tensors
from models.config import DecoderConfig
from models.decoder import Decoder, init_params, param_shardings
from models.hf import file_layout, load_params, replaced_folder, save_folder
from models.hub import resolve_folder
from models.safetensors_io import read_tensors, write_tensors
from tests.meshes import mesh_of
from tests.models import reference
from tests.models.test_folders import edit_config
from tests.other_processes import start_python

pytestmark = pytest.mark.usefixtures("quick_compilation")

UMASK = os.umask(0)
os.umask(UMASK)


@pytest.mark.parametrize(
    "family,tied,max_shard_size,shape",
    [
        ("Qwen2", True, 5 * 10**9, (1, 1, 1)),
        ("Qwen2", False, 100_000, (2, 2, 2)),
        ("Qwen3", True, 100_000, (2, 2, 2)),
        ("Llama", False, 5 * 10**9, (1, 1, 1)),
    ],
)
def test_float32_round_trip_is_bit_identical(
    tmp_path, monkeypatch, family, tied, max_shard_size, shape
):
    monkeypatch.setattr(hf, "MAX_FILE_SIZE", max_shard_size)
    source, target = tmp_path / "in", tmp_path / "out"
    reference.make(
        source, family, tie_word_embeddings=tied, max_shard_size=max_shard_size
    )
    model, params = reference.load(source, shape)
    save_folder(target, params, model.config, assets=source, dtype="float32")
    if max_shard_size > 100_000:
        assert reference.contents(target) == reference.contents(source)
        return
    written, read = file_layout(target), file_layout(source)
    assert written.keys() == read.keys() and len(set(written.values())) > 1
    for name in written:
        found = read_tensors(target / written[name])[name]
        np.testing.assert_array_equal(found, read_tensors(source / read[name])[name])


def test_transformers_loads_a_bfloat16_export(tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    theirs = reference.make(source, tie_word_embeddings=False)
    model, params = reference.load(source, (1, 2, 1))
    save_folder(target, params, model.config, assets=source)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(target)
    assert loaded.dtype == torch.bfloat16
    for name, value in theirs.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value.bfloat16()), name
    # An export is itself a model that we read.
    _, again = reference.load(target)
    assert jax.tree.leaves(again)[0].dtype == np.float32


def test_an_export_holds_two_layers_at_a_time(tmp_path, monkeypatch):
    reference.make(tmp_path, num_hidden_layers=4)
    model, params = reference.load(tmp_path)
    made, held = [], []

    def counted(*arguments):
        arrays = convert_group(*arguments)
        made.append(weakref.ref(arrays[0]))
        held.append(sum(first() is not None for first in made))
        return arrays

    convert_group = tensors.convert_group
    monkeypatch.setattr(tensors, "convert_group", counted)
    stream = tensors.export_tensors(params, model.config, np.dtype(np.float32))
    collections.deque(stream, maxlen=0)
    assert len(held) == 6 and max(held) == 2


def test_parameters_are_sharded_as_the_rules_say(tmp_path):
    reference.make(tmp_path)
    mesh = mesh_of(2, 2, 2)
    model = Decoder(DecoderConfig.from_folder(tmp_path), mesh=mesh)
    for params in (load_params(tmp_path, model, mesh), init_params(model, mesh, 0)):
        expected = param_shardings(model, mesh)
        jax.tree.map(lambda x, s: x.sharding.is_equivalent_to(s, x.ndim) or 1 / 0,
                     params, expected)  # fmt: skip
        # [L, D, N, H] = [2, 64, 4, 16]: fsdp halves D, tensor halves the heads.
        assert params["layers"]["q"].addressable_data(0).shape == (2, 32, 2, 16)


def test_files_equal_those_of_the_safetensors_package(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        "b": rng.normal(size=(3, 5)).astype(np.float32),
        "a.é": rng.normal(size=(7,)).astype(np.float16),
        "c": np.zeros((0, 4), np.float32),
        "d": rng.normal(size=(2, 2, 2)),
    }
    safetensors.numpy.save_file(tensors, tmp_path / "theirs", {"format": "pt"})
    specs = {name: (x.shape, x.dtype) for name, x in tensors.items()}
    write_tensors(tmp_path / "written", specs, tensors.items())
    assert (tmp_path / "written").read_bytes() == (tmp_path / "theirs").read_bytes()
    for name, array in read_tensors(tmp_path / "theirs").items():
        np.testing.assert_array_equal(array, tensors[name])


def test_an_export_names_its_architecture_where_the_base_does_not(tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    reference.make(source, "Qwen3")
    named = {"architectures": ["Qwen3ForCausalLM"]}
    said = json.loads((source / "config.json").read_text())
    assert said.items() >= named.items()
    edit_config(source, without=("architectures",))
    model, params = reference.load(source)
    save_folder(target, params, model.config, assets=source, dtype="float32")
    assert json.loads((target / "config.json").read_text()) == said


@pytest.mark.failure(38)
@pytest.mark.parametrize(
    "value,dtype", [(np.nan, "float32"), (np.inf, "bfloat16"), (1e6, "float16")]
)
def test_weights_that_are_not_finite_are_not_exported(tmp_path, value, dtype):
    reference.make(tmp_path / "in")
    model, params = reference.load(tmp_path / "in")
    out = tmp_path / "out"
    save_folder(out, params, model.config, assets=tmp_path / "in", dtype=dtype)
    before = (out / "model.safetensors").read_bytes()
    params["layers"]["up"] = params["layers"]["up"].at[1, 2, 3].set(value)
    with pytest.raises(ValueError) as caught:
        save_folder(out, params, model.config, assets=tmp_path / "in", dtype=dtype)
    name = "model.layers.1.mlp.up_proj.weight"
    size = params["layers"]["up"][1].size
    message = f"in {dtype}, {name} is not finite in 1 of {size:,} entries; use a"
    assert message in str(caught.value)
    # What was there before stays.
    assert (out / "model.safetensors").read_bytes() == before


@pytest.fixture
def folder(tmp_path):
    """A folder with a file, to be replaced."""
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "old").touch()
    return tmp_path / "hf"


def _replace(folder):
    with replaced_folder(folder) as partial:
        (partial / "new").touch()


def _names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.mark.failure(80)
def test_a_link_to_a_folder_is_followed(tmp_path, folder):
    """Users keep large folders on another disk; `rmtree` refuses links."""
    link = tmp_path / "link"
    link.symlink_to(folder)
    _replace(link)
    assert link.is_symlink() and _names(folder) == ["new"]


@pytest.mark.failure(177)
def test_other_files_of_a_replaced_folder_are_kept(tmp_path, folder, capsys):
    (folder / "old").rename(folder / "notes.txt")
    (folder / "notes.txt").write_text("mine")
    _replace(folder)
    (kept,) = tmp_path.glob("hf.replaced-*")
    assert (kept / "notes.txt").read_text() == "mine"
    assert f"had other files (notes.txt); moved to {kept}" in capsys.readouterr().out


@pytest.mark.failure(201)
def test_an_export_with_more_weight_files_is_replaced(tmp_path, capsys):
    folder = tmp_path / "hf"
    folder.mkdir()
    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json"):
        (folder / name).touch()
    with replaced_folder(folder) as partial:
        (partial / "model.safetensors").touch()
    assert _names(folder) == ["model.safetensors"]
    assert list(tmp_path.iterdir()) == [folder] and not capsys.readouterr().out


def test_two_processes_make_one_folder_of_a_cache(tmp_path):
    folder, found = tmp_path / "cache" / "model", []

    def make(started):
        with hf.made_once(folder) as missing:
            started.set()
            found.append(missing)
            if missing:
                time.sleep(0.2)
                with replaced_folder(folder) as partial:
                    (partial / hf.WEIGHTS).touch()

    for _ in range(2):
        first, second = threading.Event(), threading.Event()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            calls = [pool.submit(make, first)]
            first.wait()
            calls.append(pool.submit(make, second))
        for call in calls:
            call.result()
    assert found == [True, False, False, False]
    assert oct(folder.stat().st_mode)[-3:] == oct(0o777 & ~UMASK)[-3:]


def test_a_folder_that_cannot_be_removed_is_replaced(folder, monkeypatch):
    """Its files may belong to another user."""
    rmtree = shutil.rmtree

    def refused(path, ignore_errors=False):
        if not (path / "old").exists():
            rmtree(path, ignore_errors=ignore_errors)
        elif not ignore_errors:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    _replace(folder)
    assert _names(folder) == ["new"]


def test_an_interrupted_replacement_restores_the_folder(tmp_path, folder, monkeypatch):
    """The signal comes after the old folder was moved aside."""
    rename = pathlib.Path.rename

    def interrupted(path, target):
        if target == folder and not target.exists() and (path / "new").exists():
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(pathlib.Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _replace(folder)
    assert _names(folder) == ["old"]
    assert list(tmp_path.iterdir()) == [folder]


def test_two_processes_can_write_one_folder(tmp_path):
    folder = tmp_path / "hf"
    with replaced_folder(folder) as second:
        with replaced_folder(folder) as first:
            (first / "file").write_text("first")
            (second / "file").write_text("second")
        inode = folder.stat().st_ino
    assert folder.stat().st_ino != inode
    assert (folder / "file").read_text() == "second"
    assert list(tmp_path.iterdir()) == [folder]


def test_an_interrupted_lock_leaves_no_folder(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt), replaced_folder(tmp_path / "hf"):
        pass
    assert list(tmp_path.iterdir()) == []


WRITER = """
    import pathlib, sys, time
    from models.hf import replaced_folder
    with replaced_folder(pathlib.Path(sys.argv[1])) as partial:
        print(partial, flush=True)
        time.sleep(600)
"""


def test_the_next_export_removes_what_a_killed_process_left(tmp_path):
    folder = tmp_path / "hf"
    for left in (".hf.partial", ".hf.12ab.partial", ".hf.12ab.replaced.partial"):
        (tmp_path / left).mkdir()
    writer = start_python("-c", WRITER, folder)
    left = pathlib.Path(writer.stdout.readline().strip())
    assert list(tmp_path.iterdir()) == [left]
    with replaced_folder(folder):
        assert left.is_dir(), "its process lives"
    writer.kill()
    writer.wait()
    with replaced_folder(folder):
        assert not left.exists()
    assert list(tmp_path.iterdir()) == [folder]


def test_an_index_leads_to_no_file_outside_of_its_folder(tmp_path):
    """Neither to be read, nor, since an export keeps its names, to be written."""
    for name in ("../secret.safetensors", "/etc/secret.safetensors", "a/b.safetensors",
                 "..", ".safetensors", "config.json", 3):  # fmt: skip
        index = {"weight_map": {"model.norm.weight": name}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(ValueError, match="must be the name of a .safetensors"):
            file_layout(tmp_path)


@pytest.mark.failure(33)
def test_damaged_weights_are_refused_by_name(tmp_path):
    reference.make(tmp_path)
    path = tmp_path / "model.safetensors"
    for damaged, message in (
        (path.read_bytes()[:-100], "damaged .* not fully"),
        (b"\xff" * 64, "damaged safetensors"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"model.safetensors: {message}"):
            reference.load(tmp_path)


@pytest.mark.failure(128)
@pytest.mark.failure(213)
def test_an_unreachable_model_is_one_line():
    with pytest.raises(ValueError, match="^./nowhere: no such model folder; .* GGUF"):
        resolve_folder("./nowhere")
    with pytest.raises(ValueError, match="^nobody/nothing: no such folder") as e:
        resolve_folder("nobody/nothing")
    assert "\n" not in str(e.value) and "free space of HF_HOME" in str(e.value)


@pytest.mark.failure(164)
@pytest.mark.parametrize(
    "change,message",
    [
        ({"model_type": "gemma"}, "model_type='gemma'"),
        ({"model_type": "qwen3"}, "architectures=.* only Qwen3ForCausalLM"),
        ({"architectures": ["Qwen2ForTokenClassification"]}, "architectures="),
        ({"rope_parameters": None, "rope_scaling": {"type": "yarn", "factor": 4}},
         "rope_scaling.rope_type='yarn' is not supported, only 'default'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type='yarn'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}},
         "rope_parameters.low_freq_factor=None"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"use_sliding_window": True}, "use_sliding_window=True"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"num_key_value_heads": "2"}, "num_key_value_heads='2' must be"),
        ({"head_dim": 15}, "head_dim=15"),
        ({"vocab_size": True}, "vocab_size=True must be"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps='tiny' must be a number"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps=nan must be a number"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings='false' is not"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ({"quantization_config": {"quant_method": "fp8"}},
         "quantization_config=.*'fp8'. is not supported, only unquantized weights"),
        ({"rope_scaling": [1]}, r"rope_scaling=\[1\]"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
         "rope_parameters=.* only a JSON object without other objects"),
        # As a model card says to stretch it; transformers obeys this one of the two.
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "scaling.rope_type='yarn'"),
        ({"rope_scaling": {"type": "default", "a": 1}},
         "rope_parameters=.* only a copy of rope_scaling"),
        ({"rope_parameters": reference.LLAMA_3 | {"low_freq_factor": 4.0}},
         "rope_parameters.low_freq_factor=4.0"),
    ],
)  # fmt: skip
def test_unsupported_configs_are_refused_by_name_and_value(tmp_path, change, message):
    reference.make(tmp_path)
    edit_config(tmp_path, **change)
    with pytest.raises(ValueError, match=f"config.json: .*{message}"):
        DecoderConfig.from_folder(tmp_path)


def test_a_partly_cached_model_is_described_by_the_hub(tmp_path, monkeypatch):
    """Another program may have fetched config.json alone."""
    import huggingface_hub

    snapshot = tmp_path / "hub/models--a--b/snapshots/1"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("1")
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setattr(
        huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub")
    )
    fetched = []

    def snapshot_download(text, **where):
        fetched.append(where["local_dir"])
        return str(pathlib.Path(where["local_dir"]).resolve())

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    (tmp_path / "linked").symlink_to(tmp_path)  # as is the temporary folder of macOS
    described = tmp_path / "linked/described"
    assert resolve_folder("a/b", described_in=described) == described
    # Nor is a description whole that was made for a tokenizer: generation config and
    # with it stop tokens would come with the weights.
    (snapshot / "tokenizer_config.json").write_text("{}")
    assert resolve_folder("a/b", described_in=described) == described
    # Nor is a download that was interrupted: the run would resume it.
    shards = [f"model-{i}.safetensors" for i in (1, 2)]
    index = {"weight_map": dict(zip("ab", shards, strict=True))}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    (snapshot / shards[0]).write_text("")
    assert resolve_folder("a/b", described_in=described) == described
    (snapshot / shards[1]).write_text("")
    assert resolve_folder("a/b", described_in=described) == snapshot
    assert fetched == [described] * 3


@pytest.mark.failure(128)
def test_an_unknown_model_is_refused_before_it_is_fetched(tmp_path, monkeypatch):
    import huggingface_hub

    reference.make(tmp_path)
    fetched = []

    def snapshot_download(text, revision, allow_patterns):
        assert (text, revision) in (("a/b", None), ("a/c", "1f"))
        fetched.append("*.safetensors" in allow_patterns)
        return tmp_path

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve_folder("a/c@1f") == tmp_path
    assert fetched == [False, True]
    edit_config(tmp_path, model_type="gemma3")
    with pytest.raises(ValueError, match="^.*config.json: model_type='gemma3' is not"):
        resolve_folder("a/b")
    assert fetched == [False, True, False]


@pytest.mark.failure(202)
def test_offline_a_model_without_its_license_is_read(tmp_path, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def snapshot_download(*_, ignore_patterns=(), **__):
        if "LICENSE*" not in ignore_patterns:
            raise LocalEntryNotFoundError("1 file(s) are missing (LICENSE)")
        return tmp_path

    reference.make(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve_folder("a/b") == tmp_path


@pytest.mark.parametrize("same", [True, False])
def test_a_tied_head_that_is_stored_is_the_embedding(tmp_path, same):
    """transformers does not tie two that differ: it would be another policy."""
    model = reference.make(tmp_path)
    tensors = {name: x.numpy().copy() for name, x in model.state_dict().items()}
    head = tensors["model.embed_tokens.weight"] + (not same)
    tensors["lm_head.weight"] = head
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    if same:
        reference.load(tmp_path)
        return
    with pytest.raises(ValueError, match="lm_head.weight differs from"):
        reference.load(tmp_path)


def test_quantised_weights_are_named(tmp_path):
    header = {"w": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}
    text = json.dumps(header).encode()
    (tmp_path / "w").write_bytes(len(text).to_bytes(8, "little") + text + b"0")
    with pytest.raises(ValueError, match="w has dtype F8_E4M3, but only F64, F32"):
        read_tensors(tmp_path / "w")
