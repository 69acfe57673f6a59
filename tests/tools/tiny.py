"""A random model that reads and writes single characters, and sums to ask it."""

import pathlib
import string

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rl.files import replace_rows
from tests.models import reference

END = "<|endoftext|>"
# transformers reads the folder as Qwen2's, whose byte-level space is \u0120.
CHARACTERS = string.digits + string.ascii_lowercase + "+=?{}\\\u0120AW."


def make_model(folder: pathlib.Path, **changes) -> pathlib.Path:
    """Saves a random two-layer model with its tokenizer as a Hugging Face folder."""
    vocabulary = {c: i for i, c in enumerate([END, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    # Heads of 32: vLLM's CPU attention knows none narrower.
    sizes = dict(num_attention_heads=2, num_key_value_heads=1, vocab_size=48)
    reference.make(folder, **sizes | {"max_position_embeddings": 96} | changes)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, clean_up_tokenization_spaces=False
    ).save_pretrained(folder)
    return folder


def make_sums(path: pathlib.Path, count: int = 40) -> pathlib.Path:
    """Writes a benchmark of sums."""
    rows = [
        {"id": f"s{i}", "problem": f"{i}+{3 * i}=?", "answer": str(4 * i), "level": 1}
        for i in range(count)
    ]
    replace_rows(path, rows)
    return path
