"""Converts problems to prompts of token ids, and completions to text.

The template changes scores: Qwen2.5-Math-7B scores 50.6 on MATH-500 with its own
template and 69.0 with none (understand-r1-zero, arXiv 2503.20783, table 1).
"""

import collections
import datetime
import functools
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jinja2 import Environment, TemplateError, meta

from rl.problems.tokenizer import Tokenizer, UnreadableText, check_ids
from rl.types import Problem

SLOT = "{problem}"

# "qwen_math" is the Qwen2.5 chat format with the system prompt of Qwen2.5-Math. "r1" is
# the template of DeepSeek-R1-Zero as in understand-r1-zero; it ends with "<think>".
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


# Date for chat templates that write the current date (Llama 3.2, SmolLM3). A fixed date
# makes runs reproducible; this one is the default in Llama's template.
_TODAY = datetime.date(2024, 7, 26)
_DATE = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")


def check_template(template: str) -> None:
    """Raises ValueError if a template is not valid; see `encode_prompt`."""
    known = template in TEMPLATES or chat_arguments(template) is not None
    if not known and SLOT not in template:
        names = ", ".join([*TEMPLATES, "model", "model:JSON"])
        raise ValueError(
            f"template={template!r}: must be one of {names}, or a text with {SLOT}"
        )
    if not known and "\\n" in template and "\n" not in template:
        raise ValueError(
            f"template={template!r}: contains a backslash and an n, but no line break;"
            " in a shell quote it as $'...', or set it in a config file"
        )


def chat_arguments(template: str) -> dict[str, Any] | None:
    """Returns the arguments in a template such as `model:{"enable_thinking": false}`.

    Returns {} for "model". Returns None for other templates, or if the text after
    "model:" is not a JSON object.
    """
    name, _, text = template.partition(":")
    if name != "model":
        return None
    try:
        arguments = json.loads(text if template != name else "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


def own_chat_template(tokenizer: Tokenizer) -> str:
    """Returns the tokenizer's chat template, with a fixed date in place of today's.

    Raises ValueError if there is none, or if there are several without a default.
    """
    templates, name = tokenizer.chat_template, tokenizer.name_or_path
    if not templates:
        raise ValueError(
            f"the tokenizer of {name!r} has no chat template; set config.data.template"
            " or --template to another"
        )
    if isinstance(templates, dict) and "default" not in templates:
        raise ValueError(
            f"the tokenizer of {name!r} has several chat templates"
            f" ({', '.join(sorted(templates))}); rename one to default in"
            " tokenizer_config.json, or set config.data.template or --template to"
            " another"
        )
    text = tokenizer.get_chat_template().removeprefix("\ufeff")
    return _DATE.sub(lambda call: json.dumps(_TODAY.strftime(call[2])), text)


@functools.lru_cache(maxsize=1)
def _variables(chat_template: str) -> set[str]:
    """Returns the names of a chat template's arguments."""
    environment = Environment(extensions=["jinja2.ext.loopcontrols"])
    # A tag that transformers adds to Jinja.
    text = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", chat_template)
    return meta.find_undeclared_variables(environment.parse(text))


@functools.lru_cache(maxsize=1)
def _begin_ids(tokenizer: Tokenizer) -> list[int]:
    """Returns the ids that the tokenizer adds before a text, such as the BOS token."""
    bare = tokenizer.encode("x", add_special_tokens=False)
    whole = tokenizer.encode("x")
    # Only the ids before the text: a prompt must not have an end token.
    starts = range(len(whole) - len(bare) + 1)
    return whole[: next((i for i in starts if whole[i : i + len(bare)] == bare), 0)]


def begin_of_text(tokenizer: Tokenizer) -> str:
    """Returns the text that the tokenizer adds before a prompt; "" for Qwen."""
    return str(tokenizer.decode(_begin_ids(tokenizer)))


def encode_prompt(
    tokenizer: Tokenizer, template: str, problem: Problem, *, vocab_size: int
) -> list[int]:
    """Renders a problem's prompt and encodes it, beginning as the tokenizer does.

    The template is "none" (the problem alone), "qwen_math", "r1", "model", or a text
    with `{problem}`. "model" applies the tokenizer's chat template to the problem as
    the user's message. Arguments for the chat template may follow (`chat_arguments`).
    Call `check_template` first.

    Raises:
      UnreadableText: an id has no row in the embedding, the decoded prompt differs (see
        `check_text`), or the problem contains a special token. Template "none" permits
        special tokens, because the problem may then be a whole chat.
      ValueError: the tokenizer's chat template is missing or fails, or the prompt is
        empty.
    """
    what = f"prompt of problem {problem.id!r}"
    if template != "none":
        for token in _special_tokens(tokenizer):
            if token in problem.problem:
                raise UnreadableText(
                    f"{what}: the problem contains the special token {token!r};"
                    " remove it, or set config.data.template or --template to 'none'"
                )
    if (arguments := chat_arguments(template)) is None:
        text = TEMPLATES.get(template, template).replace(SLOT, problem.problem)
    else:
        text = _render_chat(tokenizer, template, arguments, problem.problem)
    if not text:
        raise ValueError(
            f"template={template!r}: gives an empty prompt; set config.data.template or"
            " --template to another"
        )
    bare = tokenizer.encode(text, add_special_tokens=False)
    check_text(tokenizer, text, bare, vocab_size=vocab_size, what=what)
    # The text may have the BOS token already, as those of chat templates have.
    bos = tokenizer.bos_token
    begin = [] if bos and text.startswith(bos) else _begin_ids(tokenizer)
    check_ids(begin, vocab_size=vocab_size, what=what)
    return begin + bare


def _render_chat(
    tokenizer: Tokenizer, template: str, arguments: Mapping[str, Any], message: str
) -> str:
    try:
        chat = own_chat_template(tokenizer)
        if unused := arguments.keys() - _variables(chat):
            raise ValueError(
                f"the chat template of {tokenizer.name_or_path!r} does not use"
                f" {min(unused)!r}; correct or remove this argument"
            )
        return str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": message}],
                tokenize=False,
                add_generation_prompt=True,
                chat_template=chat,
                **arguments,
            )
        )
    except TemplateError as error:
        name = tokenizer.name_or_path
        raise ValueError(
            f"template={template!r}: the chat template of {name!r} fails on a user"
            f" message ({error.message}); set config.data.template or --template to"
            " another"
        ) from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"template={template!r}: {error}") from None


@functools.lru_cache(maxsize=1)
def _special_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    added = tokenizer.added_tokens_decoder.values()
    return tuple(token.content for token in added if token.special and token.content)


def check_text(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], *, vocab_size: int, what: str
) -> None:
    """Raises UnreadableText if `ids` do not decode to `text`, or fail `check_ids`.

    Some differences are accepted: the Unicode form of accents (NFC), additional or
    moved white space, and leading spaces, which SentencePiece adds and removes.
    """
    check_ids(ids, vocab_size=vocab_size, what=what)
    # transformers checks every entry of a list in Python, which takes a third longer.
    read = tokenizer.decode(np.asarray(ids), clean_up_tokenization_spaces=False)
    before, after = (
        unicodedata.normalize("NFC", each).lstrip(" ") for each in (text, str(read))
    )
    if before == after:
        return
    lost = "".join(collections.Counter(before) - collections.Counter(after))
    # A word-level tokenizer decodes with additional spaces between tokens.
    if lost or "".join(before.split()) != "".join(after.split()):
        at = len(os.path.commonprefix([before, after]))
        change = f"loses {lost!r:.60}" if lost else "adds or moves characters"
        raise UnreadableText(
            f"{what}: the tokenizer {change}: its tokens for"
            f" {before[max(0, at - 20) : at + 20]!r} decode to"
            f" {after[max(0, at - 20) : at + 20]!r}"
        )


def decode_completion(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    stop_token_ids: Collection[int],
    *,
    show_unknown: bool = False,
) -> str:
    """Returns a completion as text, without a special stop token at its end.

    A space at the start stays, although Llama's tokenizers drop it from a text that
    they decode alone. Other special tokens stay too, because a reward may read them.
    Ids beyond the tokenizer's last one, which pad the vocabulary, are left out. With
    `show_unknown`, such ids are written in the form `<|id 151700|>`.
    """
    ids = list(token_ids)
    if ids and ids[-1] in stop_token_ids:
        if not tokenizer.decode(ids[-1:], skip_special_tokens=True):
            ids.pop()
    before, length = _some_text(tokenizer)

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(before + ids))[length:]

    if not show_unknown:
        return decode(ids)
    text, size = "", len(tokenizer)
    for known, run in itertools.groupby(ids, key=lambda i: i < size):
        if known:
            text += decode(list(run))
        else:
            text += "".join(f"<|id {i}|>" for i in run)
    return text


@functools.lru_cache(maxsize=1)
def _some_text(tokenizer: Tokenizer) -> tuple[list[int], int]:
    """Returns the ids of a short text, and the length of their decoded text."""
    ids = tokenizer.encode("0", add_special_tokens=False)
    return ids, len(tokenizer.decode(ids))
