"""Loads tokenizers of transformers without importing torch.

If torch is installed, transformers would import it with the first tokenizer, which
takes seconds and hundreds of megabytes. This module hides torch during the import of
transformers, unless the process has already imported one of the two.
"""

import json
import os
import pathlib
import sys
from collections.abc import Iterable

from models.safetensors_io import refuse_pointer
from rl.files import damaged

_HIDE = not {"torch", "transformers"} & sys.modules.keys()
if _HIDE:
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes imports fail
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

import tokenizers  # noqa: E402
from transformers import AutoTokenizer, Qwen2Tokenizer  # noqa: E402
from transformers import PreTrainedTokenizerBase as Tokenizer  # noqa: E402

if _HIDE:
    del sys.modules["torch"]

__all__ = ["AutoTokenizer", "Qwen2Tokenizer", "Tokenizer"]


class UnreadableText(ValueError):
    """Signals that the tokenizer or the model cannot represent a text."""


def load_tokenizer(folder: pathlib.Path) -> Tokenizer:
    """Loads the tokenizer of a model folder; raises ValueError if that fails."""
    # Without these files, transformers returns a tokenizer that has no vocabulary.
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        raise ValueError(
            f"{folder}: has no tokenizer.json; copy the tokenizer's files from the"
            " model's page, or convert an older format with AutoTokenizer of"
            " transformers: from_pretrained, then save_pretrained"
        )
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # tokenizers' own errors are plain Exceptions
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        advice = "copy its files again"
        if "untagged enum" in reason:
            advice = (
                f"tokenizer.json has a type that tokenizers {tokenizers.__version__}"
                " does not know; update this package"
            )
        if "custom code" in reason:
            advice = "code in a model's folder is not run; use another tokenizer"
        for path in sorted(folder.glob("*.json")):
            refuse_pointer(path, path.read_bytes())
        raise ValueError(
            f"{folder}: cannot load the tokenizer ({reason}); {advice}"
        ) from None


def default_stop_ids(
    folder: pathlib.Path, tokenizer: Tokenizer, *, vocab_size: int
) -> tuple[int, ...]:
    """Returns the ids that end a completion of a model, sorted.

    They are `eos_token_id` of `generation_config.json` (without this file, of
    `config.json`), the tokenizer's end-of-sequence token, `<|endoftext|>` and
    `<|im_end|>`. A Qwen base model may end a text with either of the last two. Ids from
    the tokenizer that have no row in the embedding are left out. Raises ValueError if a
    file cannot be read or has an id without such a row, or if no stop token remains.
    """
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            ids |= _stated(folder / name)
            check_ids(ids, vocab_size=vocab_size, what=f"{folder / name}: eos_token_id")
            break
    vocabulary = tokenizer.get_vocab()
    usual = (tokenizer.eos_token, "<|endoftext|>", "<|im_end|>")
    tokens = [token for token in usual if token in vocabulary]
    if (folder / "tokenizer.json").is_file():
        # A class of transformers may add tokens, which the model has never seen.
        files = folder.glob("*token*.json")
        text = "\n".join(path.read_text("utf-8") for path in files)
        tokens = [t for t in tokens if t in text or json.dumps(t)[1:-1] in text]
    known = {vocabulary[token] for token in tokens}
    ids |= {one for one in known if one < vocab_size}
    if not ids:
        raise ValueError(
            f"{folder}: no stop token that the model can sample; set eos_token_id in"
            " generation_config.json, or config.rollout.stop_token_ids"
        )
    return tuple(sorted(ids))


def check_ids(ids: Iterable[int], *, vocab_size: int, what: str) -> None:
    """Raises UnreadableText if a token id has no row in the model's embedding."""
    # The decoder would use a wrong embedding, without an error.
    if beyond := sorted(i for i in ids if not 0 <= i < vocab_size):
        raise UnreadableText(
            f"{what}: token id {beyond[0]}: must be at least 0 and less than"
            f" vocab_size={vocab_size} of config.json"
        )


def _stated(path: pathlib.Path) -> set[int]:
    with damaged(path, "correct eos_token_id"):
        stated = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        ids = set(stated if isinstance(stated, list) else [stated]) - {None}
        for one in ids:
            if type(one) is not int:
                raise TypeError(f"{one!r} is not a token id")
        return ids
