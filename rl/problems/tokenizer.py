"""Tokenizers from transformers, without torch.

Where torch is installed, transformers imports it with its first tokenizer: seconds and
hundreds of megabytes for something that the trainer never uses. It is hidden while
transformers looks for it, unless this process uses it already.
"""

import json
import os
import pathlib
import sys

_HIDE = "torch" not in sys.modules
if _HIDE:
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes imports fail
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

from transformers import (  # noqa: E402
    AutoTokenizer,
    PreTrainedTokenizerBase,
    Qwen2Tokenizer,
)

if _HIDE:
    del sys.modules["torch"]

__all__ = [
    "AutoTokenizer",
    "PreTrainedTokenizerBase",
    "Qwen2Tokenizer",
    "default_stop_ids",
    "load_tokenizer",
]


def load_tokenizer(folder: pathlib.Path) -> PreTrainedTokenizerBase:
    """The folder's own tokenizer."""
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{folder}: no usable tokenizer ({reason})") from None


def default_stop_ids(
    folder: pathlib.Path, tokenizer: PreTrainedTokenizerBase
) -> tuple[int, ...]:
    """The ids that end a text of this model.

    Those of `generation_config.json`, where there is none of `config.json`, and of the
    tokenizer, and where the vocabulary is Qwen's both of its end tokens: a base model
    may use either.

    Raises:
      ValueError: names the file, which cannot be read.
    """
    ids = {tokenizer.eos_token_id}
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            ids |= _stated(folder / name)
            break
    vocabulary = tokenizer.get_vocab()
    ids |= {vocabulary.get(token) for token in ("<|endoftext|>", "<|im_end|>")}
    return tuple(sorted(ids - {None}))


def _stated(path: pathlib.Path) -> set[int | None]:
    """The stop ids that a config names."""
    try:
        stated = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        ids = set(stated if isinstance(stated, list) else [stated])
        if not all(isinstance(one, int | None) for one in ids):
            raise TypeError(f"eos_token_id={stated!r}")
        return ids
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no usable config ({error})") from None
