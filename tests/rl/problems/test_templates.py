import types

import pytest
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rl.problems.templates import encode_prompt
from rl.problems.tokenizer import default_stop_ids


@pytest.fixture(scope="module")
def tokenizer(shared_data):
    return AutoTokenizer.from_pretrained(shared_data / "qwen2_tokenizer")


def test_qwen_math_equals_the_models_own_chat_template(tokenizer):
    """The Qwen2.5-Math template is the chat template with its default system turn."""
    problem = "What is $1+1$? <b> {problem} \\boxed{} é 你好\n"
    ours = encode_prompt(tokenizer, "qwen_math", problem)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": problem}],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert ours == chat == encode_prompt(tokenizer, "model", problem)
    # <|im_start|> is one token; read as plain text it would be six.
    assert ours[0] == 151644 and ours.count(151644) == 3 and ours.count(151645) == 2


def test_qwen_math_needs_no_chat_template(tokenizer, shared_data):
    bare = AutoTokenizer.from_pretrained(shared_data / "qwen2_tokenizer")
    bare.chat_template = None
    assert encode_prompt(bare, "qwen_math", "2+2?") == encode_prompt(
        tokenizer, "qwen_math", "2+2?"
    )
    with pytest.raises(ValueError, match="has no chat template"):
        encode_prompt(bare, "model", "2+2?")


def test_none_is_the_bare_problem(tokenizer):
    ids = encode_prompt(tokenizer, "none", "Find $x$.")
    assert tokenizer.decode(ids) == "Find $x$."


def test_r1_opens_the_thinking(tokenizer):
    text = tokenizer.decode(encode_prompt(tokenizer, "r1", "Find $x$."))
    assert text.startswith("A conversation between User and Assistant.")
    assert text.endswith(
        "tags, respectively, i.e., <think> reasoning process here "
        "</think> <answer> answer here </answer>.\n"
        "User: Find $x$.\nAssistant: <think>"
    )


def test_literal_keeps_its_braces_and_the_problems(tokenizer):
    ids = encode_prompt(tokenizer, "Q: {problem}\nUse \\boxed{}. A:", "{x} {problem}")
    assert tokenizer.decode(ids) == "Q: {x} {problem}\nUse \\boxed{}. A:"


def beginning_tokenizer():
    """Puts `<s>` before any text, as Llama's does."""
    words = Tokenizer(WordLevel({"<s>": 0, "one": 1, "two": 2, "?": 3}, "?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>")


@pytest.mark.parametrize("template", ["none", "<s> {problem}", "model"])
def test_the_begin_of_text_is_there_once(template):
    """Transformers puts it before any text of Llama's; so do its chat templates."""
    llama = beginning_tokenizer()
    llama.chat_template = "{{ bos_token }} {{ messages[0]['content'] }}"
    assert encode_prompt(llama, template, "one two") == [0, 1, 2]


def test_a_chat_template_gets_what_the_config_gives_it():
    llama = beginning_tokenizer()
    llama.chat_template = "{{ 'one' if enable_thinking is not defined else 'two' }}"
    assert encode_prompt(llama, "model", "?") == [0, 1]
    assert encode_prompt(llama, 'model:{"enable_thinking": false}', "?") == [0, 2]
    assert encode_prompt(llama, "model:{problem}", "one")[-1] == 1  # a text of its own


def test_a_chat_template_writes_the_same_date_every_day():
    """Else a run resumed after midnight is another: its prompts are."""
    llama = beginning_tokenizer()
    llama.chat_template = "{{ 'one' if strftime_now('%d %b %Y') == '26 Jul 2024' }}"
    assert encode_prompt(llama, "model", "?") == [0, 1]


@pytest.mark.parametrize(
    "template", ["qwen", "QWEN_MATH", "", "Problem: {question}", "model:{think}"]
)
def test_unknown_template_is_named(tokenizer, template):
    with pytest.raises(ValueError, match="neither one of none, qwen_math, r1, model"):
        encode_prompt(tokenizer, template, "2+2?")


def test_empty_prompt_is_refused(tokenizer):
    with pytest.raises(ValueError, match="empty problem"):
        encode_prompt(tokenizer, "none", "")


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "text", ['{"eos_token_id": ', "[]", '{"eos_token_id": "<|im_end|>"}']
)
def test_a_generation_config_that_cannot_be_read_is_named(tmp_path, text):
    path, word = tmp_path / "generation_config.json", types.SimpleNamespace()
    word.eos_token_id, word.get_vocab = 1, dict
    path.write_text('{"eos_token_id": [2, 3]}')
    assert default_stop_ids(tmp_path, word) == (1, 2, 3)
    (tmp_path / "config.json").write_text('{"eos_token_id": [4, 5]}')
    assert default_stop_ids(tmp_path, word) == (1, 2, 3)
    path.unlink()
    assert default_stop_ids(tmp_path, word) == (1, 4, 5)
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        default_stop_ids(tmp_path, word)
    assert str(caught.value).startswith(f"{path}: no usable config (")
