"""Prompt templates: from a problem's text to the token ids that a sampler is given.

The template is part of what is measured: Qwen2.5-Math-7B scores 50.6 on MATH-500 with
its own template and 69.0 with none (understand-r1-zero, arXiv 2503.20783, table 1).
"""

import datetime
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from configs.schema import Count
from rl.problems.tokenizer import PreTrainedTokenizerBase
from rl.progress import each
from rl.types import Problem

SLOT = "{problem}"

# "qwen_math" is the Qwen2.5 chat format with the system prompt of Qwen2.5-Math; "r1"
# is DeepSeek-R1-Zero's as understand-r1-zero spells it, thinking already opened.
TEMPLATES = {
    "none": SLOT,
    "qwen_math": (
        "<|im_start|>system\n"
        "Please reason step by step, and put your final answer within \\boxed{}."
        "<|im_end|>\n"
        "<|im_start|>user\n" + SLOT + "<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "r1": (
        "A conversation between User and Assistant. The User asks a question, and the "
        "Assistant solves it. The Assistant first thinks about the reasoning process "
        "in the mind and then provides the User with the answer. The reasoning process "
        "is enclosed within <think> </think> and answer is enclosed within <answer> "
        "</answer> tags, respectively, i.e., <think> reasoning process here </think> "
        "<answer> answer here </answer>.\nUser: " + SLOT + "\nAssistant: <think>"
    ),
}


# Chat templates that write the day's date (Llama 3.2, SmolLM3) write this one, which
# Llama's fall back to: prompts, and with them a run, are the same tomorrow.
_TODAY = datetime.date(2024, 7, 26)
_DATE = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")


def check_template(template: str) -> None:
    """Raises ValueError unless `template` is a known name or holds `{problem}`."""
    known = template in TEMPLATES or chat_arguments(template) is not None
    if not known and SLOT not in template:
        names = ", ".join([*TEMPLATES, "model"])
        raise ValueError(
            f"template={template!r}: neither one of {names} nor a text with {SLOT}"
        )


def chat_arguments(template: str) -> dict[str, Any] | None:
    """What "model" or "model:{...}" gives to the tokenizer's own chat template.

    None: `template` is another. The object after the colon is one of JSON, as in
    `model:{"enable_thinking": false}`.
    """
    name, colon, text = template.partition(":")
    if name != "model" or not colon:
        return {} if name == "model" else None
    try:
        arguments = json.loads(text)
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


def own_chat_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """The tokenizer's chat template, which writes the same date every day.

    Raises:
      ValueError: it carries none.
    """
    if not tokenizer.chat_template:
        name = tokenizer.name_or_path
        raise ValueError(f"the tokenizer of {name!r} has no chat template")
    text = tokenizer.get_chat_template()
    return _DATE.sub(lambda call: json.dumps(_TODAY.strftime(call[2])), text)


def begin_of_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """What a tokenizer puts before any text: Llama's first token, of Qwen nothing."""
    bare = tokenizer.encode("x", add_special_tokens=False)
    return str(tokenizer.decode(tokenizer.encode("x")[: -len(bare)]))


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, template: str, problem_text: str
) -> list[int]:
    """Puts a problem into a template and encodes the whole as one text.

    Args:
      tokenizer: the model's own.
      template: "none" (the bare problem), "qwen_math", "r1", "model" (the tokenizer's
        chat template, the problem being the user's turn, with `chat_arguments`), or a
        text with `{problem}`.
      problem_text: the problem as its data set states it.

    Returns:
      The prompt's token ids, with what the tokenizer puts before any text: Llama's
      begin of text, unless a chat template has put it there; of Qwen nothing.

    Raises:
      ValueError: for an unknown template, "model" with a tokenizer that carries no chat
        template, or an empty prompt.
    """
    check_template(template)
    if (arguments := chat_arguments(template)) is not None:
        try:
            chat = own_chat_template(tokenizer)
        except ValueError as error:
            raise ValueError(f"template={template!r}: {error}") from None
        text = str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": problem_text}],
                tokenize=False,
                add_generation_prompt=True,
                chat_template=chat,
                **arguments,
            )
        )
    else:
        text = TEMPLATES.get(template, template).replace(SLOT, problem_text)
    begun = bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)
    ids = tokenizer.encode(text, add_special_tokens=not begun)
    if not (text and ids):
        raise ValueError(f"template={template!r}: the prompt of an empty problem")
    return ids


def encode_all(
    tokenizer: PreTrainedTokenizerBase,
    *,
    problems: Sequence[Sequence[Problem]],
    template: str,
    max_prompt_tokens: Count,
) -> tuple[dict[str, np.ndarray], list[list[Problem]], int]:
    """Prompts by the problem's text, and the problems whose prompts fit.

    Not by its id, which another set may have too.

    Args:
      tokenizer: the model's own.
      problems: those to train on first.
      template: see `rl.problems.templates`.
      max_prompt_tokens: of a prompt that fits.

    Returns:
      The prompts, what fits of each of `problems`, and how many do not.

    Raises:
      ValueError: no prompt to train on fits.
    """
    prompts = {}
    together = [p for of_set in problems for p in of_set]
    for p in each(together, "encode", "prompts"):
        ids = encode_prompt(tokenizer, template, p.problem)
        prompts[p.problem] = np.asarray(ids, np.int32)
    fit = [
        [p for p in of_set if len(prompts[p.problem]) <= max_prompt_tokens]
        for of_set in problems
    ]
    if not fit[0]:
        raise ValueError(
            f"config.rollout.max_prompt_tokens={max_prompt_tokens}: no prompt of"
            " config.data.train fits"
        )
    return prompts, fit, len(together) - sum(map(len, fit))
