"""Folders with oddities: logits are those of transformers, or one line refuses them."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from models.config import DecoderConfig
from models.decoder import head_table
from models.hf import save_folder
from tests.models import reference

pytestmark = pytest.mark.usefixtures("quick_compilation")

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
IDS = np.arange(1, 40).reshape(1, -1) % 96


def edit_config(folder, name="config.json", *, without=(), **changes):
    path = folder / name
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if k not in without}))


def edit_weights(folder, change):
    tensors = change(safetensors.numpy.load_file(folder / WEIGHTS))
    safetensors.numpy.save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def llama_1(folder):
    """No rope_theta, no positions, LLaMA in capitals, stored rotary frequencies."""
    reference.make(folder, "Llama", rope_parameters=None, tie_word_embeddings=False)
    gone = ("rope_theta", "rope_parameters", "max_position_embeddings")
    gone += ("num_key_value_heads", "head_dim")
    edit_config(folder, without=gone, architectures=["LLaMAForCausalLM"])
    edit_weights(folder, lambda tensors: widened(with_frequencies(tensors)))


def widened(tensors):
    """Has one kv head for each query head."""
    of_heads = [n for n in tensors if ".k_proj" in n or ".v_proj" in n]
    heads = {name: tensors[name].reshape(2, 16, 64) for name in of_heads}
    return tensors | {n: np.repeat(x, 2, 0).reshape(64, 64) for n, x in heads.items()}


def with_frequencies(tensors):
    return tensors | {
        f"model.layers.{i}.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)
        for i in range(2)
    }


def llama_2(folder):
    reference.make(folder, "Llama", rope_parameters=None, tie_word_embeddings=False)
    changes = dict(pretraining_tp=1, rope_scaling=None)
    edit_config(folder, without=("rope_parameters",), **changes)
    edit_weights(folder, with_frequencies)


def without_prefix(folder):
    """As `Qwen2Model.save_pretrained` writes them."""
    reference.make(folder)
    edit_config(folder, architectures=["Qwen2Model"])
    edit_weights(folder, lambda t: {k.removeprefix("model."): x for k, x in t.items()})


def stale_index(folder):
    """Writes an index with files of other weights, and a single file."""
    reference.make(folder, seed=1, max_shard_size="100KB")
    reference.make(folder / "new", seed=2)
    (folder / "new" / WEIGHTS).rename(folder / WEIGHTS)


def padded_vocabulary(folder):
    reference.make(folder, vocab_size=160)


def old_rope(folder):
    """rope_theta at the top, as transformers 4 writes it."""
    reference.make(folder, rope_theta=500000.0)
    edit_config(folder, without=("rope_parameters",), rope_theta=500000.0)


def float16(folder):
    reference.make(folder, "Qwen3").half().save_pretrained(folder)


def short_config_vocabulary(folder):
    reference.make(folder)
    edit_config(folder, vocab_size=90)


def no_head(folder):
    reference.make(folder, tie_word_embeddings=False)
    edit_weights(folder, lambda t: {k: x for k, x in t.items() if "lm_head" not in k})


def pickled(folder):
    reference.make(folder)
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")


def marked_config(folder):
    reference.make(folder)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text, encoding="utf-8-sig")


def git_lfs_config(folder):
    git_lfs(folder, "config.json")


def git_lfs(folder, file=WEIGHTS):
    reference.make(folder)
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (folder / file).write_text(text)


def missing_shard(folder):
    reference.make(folder, max_shard_size="100KB")
    next(folder.glob("model-00002-of-*")).unlink()


def missing_index(folder):
    reference.make(folder, max_shard_size="100KB")
    (folder / "model.safetensors.index.json").unlink()


def meta_format(folder):
    (folder / "consolidated.00.pth").write_bytes(b"")
    (folder / "params.json").write_text("{}")


def adapters(folder):
    (folder / "adapter_config.json").write_text("{}")


def hub_cache(folder):
    (folder / "snapshots" / "0123").mkdir(parents=True)


def workdir(folder):
    (folder / "checkpoints").mkdir()
    (folder / "hf").mkdir()
    (folder / "config.json").write_text("{}")


FOLDERS = {
    "Llama 1": llama_1,
    "Llama 2": llama_2,
    "no prefix": without_prefix,
    "stale index": stale_index,
    "padded vocabulary": padded_vocabulary,
    "rope_theta of transformers 4": old_rope,
    "float16": float16,
}
REFUSED = {
    short_config_vocabulary: r"embed_tokens.weight has shape .96, 64., but .* .90, 64.",
    no_head: "tensor lm_head.weight is missing; .*, or set tie_word_embeddings to true",
    pickled: "model.safetensors: no such file; .* convert other weights",
    marked_config: "config.json: not valid JSON: Unexpected UTF-8 BOM",
    git_lfs: "model.safetensors: is a Git LFS pointer, not the file",
    git_lfs_config: "config.json: is a Git LFS pointer, not the file",
    missing_shard: "model-00002-of-0000.*: no such file",
    missing_index: "model.safetensors.index.json: no such file; download it",
    meta_format: "config.json: no such file; .* convert another format, .* rename this",
    adapters: "LoRA adapters, not a model; merge them with .*--peft .* --out MERGED",
    hub_cache: "folder of the Hub's cache, not a model; use .*/snapshots",
    workdir: "folder of a run, not a model; use .*/hf$",
}


@pytest.mark.failure(77)
def test_a_checkpoint_names_the_command_that_makes_a_model_of_it(tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "10"
    (folder / "checksums").mkdir(parents=True)
    expected = "10: is a checkpoint, not a model; .*--workdir .*/run --step 10 --out"
    with pytest.raises(ValueError, match=expected):
        DecoderConfig.from_folder(folder)


def logits(folder):
    model, params = reference.load(folder)
    ids = jnp.asarray(IDS, jnp.int32)
    positions = jnp.arange(ids.shape[1], dtype=jnp.int32)[None]
    hidden = model.apply({"params": params}, ids, positions, jnp.ones_like(ids))
    return np.asarray(hidden @ head_table(params).T), model.config, params


def of_transformers(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32
    ).eval()
    with torch.no_grad():
        return model(torch.tensor(IDS)).logits.numpy()


@pytest.mark.failure(65)
@pytest.mark.failure(60)
@pytest.mark.parametrize("name", FOLDERS)
def test_logits_are_those_of_transformers(tmp_path, name):
    base, out = tmp_path / "base", tmp_path / "out"
    FOLDERS[name](base)
    found, config, params = logits(base)
    np.testing.assert_allclose(found, of_transformers(base), atol=1e-4)
    # So are those of its export.
    save_folder(out, params, config, assets=base, dtype="float32")
    np.testing.assert_allclose(of_transformers(out), found, atol=1e-4)
    np.testing.assert_array_equal(logits(out)[0], found)


@pytest.mark.failure(178)
@pytest.mark.failure(146)
@pytest.mark.failure(128)
@pytest.mark.failure(89)
@pytest.mark.failure(65)
@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_what_is_not_read_is_one_line(tmp_path, make):
    make(tmp_path)
    with pytest.raises(ValueError, match=REFUSED[make]) as caught:
        logits(tmp_path)
    assert "\n" not in str(caught.value)
