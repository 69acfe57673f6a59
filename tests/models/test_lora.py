"""Adapters as they leave the trainer: merged, or alone in a PEFT folder."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

from models import lora, peft_folder
from models.decoder import Decoder, abstract_params, init_params, param_shardings
from models.inference import InferenceDecoder, served_config, served_params
from models.tensors import export_tensors
from sharding.mesh import served_mesh
from tests.meshes import mesh_of
from tests.models.test_folders import edit_config
from tests.models.test_inference import CONFIG

pytestmark = pytest.mark.usefixtures("quick_compilation")

SIZES = lora.Lora(rank=4, alpha=8.0, targets="all")
ADAPTED = dataclasses.replace(CONFIG, lora=SIZES)


@pytest.fixture(scope="module")
def adapted():
    """A model on a mesh, its parameters, and the same merged by NumPy."""
    mesh = mesh_of(fsdp=2, tensor=2)
    model = Decoder(ADAPTED, mesh)
    base = init_params(Decoder(CONFIG, mesh), mesh, 0)
    shapes, shardings = abstract_params(model)[0], param_shardings(model, mesh)
    trained = jax.tree.map(
        lambda x: x + np.random.default_rng(x.size).normal(size=x.shape),
        lora.init_adapters(shapes, shardings, 0),
    )
    params = lora.join(trained, base)
    assert lora.split(params)[0].keys() == trained.keys()
    merged = dict(base[lora.LAYERS])
    for name in SIZES.kernels:
        a, b = (np.asarray(params[lora.LAYERS][name + end]) for end in (lora.A, lora.B))
        product = a.reshape(len(a), -1, 4) @ b.reshape(len(b), 4, -1)
        merged[name] += 2 * product.reshape(merged[name].shape)
    shardings = param_shardings(Decoder(CONFIG), mesh)
    return model, params, jax.device_put(base | {lora.LAYERS: merged}, shardings)


def _close(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for x, y in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5)


@pytest.mark.parametrize("stacked", [1, 2])
def test_the_sampler_and_exports_get_merged_weights(adapted, stacked):
    model, params, merged = adapted
    mesh = served_mesh(model.mesh, 4)
    served = InferenceDecoder(served_config(ADAPTED, 4), mesh, stacked=stacked)
    whole = model.clone(config=CONFIG)
    _close(served_params(params, model, served), served_params(merged, whole, served))
    of_both = (params, ADAPTED), (merged, CONFIG)
    _close(*(dict(export_tensors(*of, np.dtype("float32"))) for of in of_both))


def _load(model, folder):
    return peft_folder.load_adapters(folder, model.clone(config=CONFIG))


def test_a_peft_folder_has_its_names_and_shapes_and_is_read_again(adapted, tmp_path):
    model, params, _ = adapted
    peft_folder.save_folder(tmp_path / "a", params, ADAPTED, base="the/base@1f")
    tensors = safetensors.numpy.load_file(tmp_path / "a/adapter_model.safetensors")
    assert len(tensors) == 2 * 7 * CONFIG.num_layers
    of_layer = "base_model.model.model.layers.1"
    for name, shape in {
        "self_attn.o_proj.lora_A": (4, 48), "self_attn.o_proj.lora_B": (48, 4),
        "mlp.up_proj.lora_A": (4, 48), "mlp.up_proj.lora_B": (64, 4),
    }.items():  # fmt: skip
        assert tensors[f"{of_layer}.{name}.weight"].shape == shape
    content = json.loads((tmp_path / "a/adapter_config.json").read_text())
    assert (content["r"], content["lora_alpha"], content["peft_type"]) == (4, 8, "LORA")
    # peft downloads the base by these two keys.
    assert content["base_model_name_or_path"] == "the/base"
    assert content["revision"] == "1f"
    assert peft_folder.base_of(content) == "the/base@1f"
    assert content["target_modules"] == sorted(
        f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")
    )
    config, found = _load(model, tmp_path / "a")
    assert config == ADAPTED
    trained, _ = lora.split(params)
    jax.tree.map(np.testing.assert_array_equal, found, trained)
    placed = [jax.tree.map(lambda x: x.sharding, tree) for tree in (found, trained)]
    assert placed[0] == placed[1]


def test_kernels_that_a_peft_folder_lacks_stay_as_they_are(adapted, tmp_path):
    model, params, _ = adapted
    sizes = dataclasses.replace(SIZES, targets="attention")
    part = dataclasses.replace(ADAPTED, lora=sizes)
    peft_folder.save_folder(tmp_path / "a", params, part, base="")
    _, found = _load(model, tmp_path / "a")
    for name in SIZES.kernels:
        assert np.any(found["layers"][f"{name}_lora_b"]) == (name in lora.ATTENTION)


@pytest.mark.failure(136)
def test_adapters_that_were_not_saved_completely_are_refused(adapted, tmp_path):
    model, params, _ = adapted
    peft_folder.save_folder(tmp_path / "a", params, ADAPTED, base="")
    path = tmp_path / "a/adapter_model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    lost = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"
    partly = {name: x for name, x in tensors.items() if name != lost}
    for content, message in ((partly, lost), ({}, "lora_A.weight")):
        safetensors.numpy.save_file(content, path)
        with pytest.raises(ValueError, match=f"{message} is missing; save all"):
            _load(model, tmp_path / "a")
    path.rename(path.with_suffix(".bin"))
    with pytest.raises(ValueError, match=".safetensors: .* is missing; save all"):
        _load(model, tmp_path / "a")
    for content in ({}, {"base_model_name_or_path": None}):
        with pytest.raises(ValueError, match="_or_path=None is not .*; give --base"):
            peft_folder.base_of(content)


@pytest.mark.failure(107)
@pytest.mark.failure(204)
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"use_dora": True}, "use_dora=True is not supported, only False"),
        ({"alora_invocation_tokens": [5, 7]}, r"alora_invocation_tokens=\[5, 7\] is"),
        ({"lora_bias": True}, "lora_bias=True is not supported, only None"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern={'q_proj': 8} is not"),
        ({"modules_to_save": ["lm_head"]}, "only None; merge these adapters with"),
        ({"init_lora_weights": "pissa_niter_4"}, "only those that do not change the"),
        ({"r": 0}, "r=0 must be a positive integer"),
        ({"r": 8}, r"lora_A.weight has shape \(4, 64\), but .* \(8, 64\)"),
    ],
)
def test_what_a_peft_folder_may_not_say(adapted, tmp_path, changes, message):
    model, params, _ = adapted
    peft_folder.save_folder(tmp_path / "a", params, ADAPTED, base="")
    edit_config(tmp_path / "a", "adapter_config.json", **changes)
    with pytest.raises(ValueError, match=message):
        _load(model, tmp_path / "a")
