"""Tokenizers from transformers, without torch.

Where torch is installed, transformers imports it with its first tokenizer: seconds and
hundreds of megabytes for something that the trainer never uses. It is hidden while
transformers looks for it, unless this process uses it already.
"""

import os
import sys

_HIDE = "torch" not in sys.modules
if _HIDE:
    sys.modules["torch"] = None
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

from transformers import (  # noqa: E402
    AutoTokenizer,
    PreTrainedTokenizerBase,
    Qwen2Tokenizer,
)

if _HIDE:
    del sys.modules["torch"]

__all__ = ["AutoTokenizer", "PreTrainedTokenizerBase", "Qwen2Tokenizer"]
