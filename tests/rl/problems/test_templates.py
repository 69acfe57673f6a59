import json
import types
from unittest import mock

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE, WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rl.problems import arithmetic
from rl.problems.templates import check_template, decode_completion
from rl.problems.tokenizer import UnreadableText, default_stop_ids, load_tokenizer
from rl.run_spec import _describe_faults
from rl.types import Problem
from tests.other_processes import python
from tests.rl.examples import encode_text


@pytest.fixture(scope="module")
def tokenizer(shared_data):
    return AutoTokenizer.from_pretrained(shared_data / "qwen2_tokenizer")


def test_qwen_math_equals_the_models_own_chat_template(tokenizer):
    """The Qwen2.5-Math template is the chat template with its default system turn."""
    problem = "What is $1+1$? <b> {problem} \\boxed{} é 你好\n"
    encoded = encode_text(tokenizer, "qwen_math", problem)
    how = dict(add_generation_prompt=True, return_dict=False)
    message = [{"role": "user", "content": problem}]
    chat = tokenizer.apply_chat_template(message, **how)
    assert encoded == chat == encode_text(tokenizer, "model", problem)
    # <|im_start|> is one token; read as plain text it would be six.
    assert encoded[0] == 151644
    assert (encoded.count(151644), encoded.count(151645)) == (3, 2)


def test_qwen_math_needs_no_chat_template(tokenizer, shared_data):
    bare = AutoTokenizer.from_pretrained(shared_data / "qwen2_tokenizer")
    bare.chat_template = None
    ids = encode_text(bare, "qwen_math", "2+2?")
    assert ids == encode_text(tokenizer, "qwen_math", "2+2?")
    with pytest.raises(ValueError, match="has no chat template"):
        encode_text(bare, "model", "2+2?")


@pytest.mark.parametrize(
    "template, text",
    [
        ("none", "{x} {problem}"),
        ("Q: {problem}\nUse \\boxed{}. A:", "Q: {x} {problem}\nUse \\boxed{}. A:"),
        (
            "r1",
            "tags, respectively, i.e., <think> reasoning process here </think> <answer>"
            " answer here </answer>.\nUser: {x} {problem}\nAssistant: <think>",
        ),
    ],
)
def test_a_template_keeps_its_braces_and_the_problems(tokenizer, template, text):
    ids = encode_text(tokenizer, template, "{x} {problem}")
    assert tokenizer.decode(ids).endswith(text)
    assert template == "r1" or tokenizer.decode(ids) == text


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
    assert encode_text(llama, template, "one two") == [0, 1, 2]


_THINKING = "{{ 'one' if enable_thinking is not defined else 'two' }}"


@pytest.mark.parametrize(
    "chat, template, ids",
    [
        (_THINKING, "model", [0, 1]),
        (_THINKING, 'model:{"enable_thinking": false}', [0, 2]),
        (_THINKING, "{problem}", [0, 3]),
        # The same date every day: a run resumed after midnight has the same prompts.
        ("{{ 'one' if strftime_now('%d %b %Y') == '26 Jul 2024' }}", "model", [0, 1]),
        # A byte order mark is not in the prompt.
        ("\ufeff{{ messages[0]['content'] }}", "model", [0, 3]),
    ],
)
def test_a_chat_template_gets_what_the_config_gives_it(chat, template, ids):
    llama = beginning_tokenizer()
    llama.chat_template = chat
    assert encode_text(llama, template, "?") == ids


@pytest.mark.failure(127)
def test_an_argument_that_the_chat_template_ignores_is_refused():
    llama = beginning_tokenizer()
    llama.chat_template = f"{{% generation %}}{_THINKING}{{% endgeneration %}}"
    with pytest.raises(ValueError, match="does not use 'think'; correct or remove"):
        encode_text(llama, 'model:{"think": false, "enable_thinking": true}', "?")


@pytest.mark.parametrize(
    "template", ["qwen", "QWEN_MATH", "", "Problem: {question}", "model:{think}"]
)
def test_unknown_template_is_named(template):
    with pytest.raises(ValueError, match="must be one of none, qwen_math, r1, model"):
        check_template(template)


def test_empty_prompt_is_refused(tokenizer):
    with pytest.raises(ValueError, match="gives an empty prompt"):
        encode_text(tokenizer, "none", "")


@pytest.mark.failure(62)
def test_a_line_break_typed_in_a_shell_is_refused():
    with pytest.raises(ValueError, match="contains a backslash and an n, but no line"):
        check_template(r"Question: {problem}\nAnswer:")
    check_template("Is {problem}\n\\neq 0?")


@pytest.mark.failure(165)
@pytest.mark.failure(84)
def test_a_folder_without_a_usable_tokenizer_is_one_line(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ValueError, match="has no tokenizer.json; copy .* or convert"):
        load_tokenizer(tmp_path)
    arithmetic.make_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {"type": "Later"}
    path.write_text(json.dumps(content))
    expected = r"tokenizer.json has a type that tokenizers [\d.]+ does not know; update"
    with pytest.raises(ValueError, match=expected):
        load_tokenizer(tmp_path)
    path.write_bytes(b"version https://git-lfs.github.com")
    with pytest.raises(ValueError, match="tokenizer.json: is a Git LFS pointer, not"):
        load_tokenizer(tmp_path)
    own = {"auto_map": {"AutoTokenizer": ["mine.Mine", None]}}
    own["tokenizer_class"] = "Mine"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(own))
    path.write_text("{}")
    with pytest.raises(ValueError, match="folder is not run; use another tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "chat, reason",
    [
        ("{{ raise_exception('System role required') }}", "System role required"),
        ("{% for m in messages %}", "Unexpected end of template"),
    ],
)
def test_a_chat_template_that_fails_is_one_line(chat, reason):
    llama = beginning_tokenizer()
    llama.chat_template = chat
    message = f"template='model': the chat template of .* fails on .*{reason}"
    with pytest.raises(ValueError, match=message):
        encode_text(llama, "model", "one")


def test_no_end_token_is_put_after_a_prompt():
    llama = beginning_tokenizer()
    llama.backend_tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A ?", None, [("<s>", 0), ("?", 3)]
    )
    assert llama.encode("one") == [0, 1, 3]
    assert encode_text(llama, "none", "one two") == [0, 1, 2]


@pytest.mark.failure(57)
@pytest.mark.parametrize(
    "text,fault",
    [("18+11?", ""), ("18*11?",
     "the tokenizer loses '*': its tokens for '18*11?' decode to '1811?'"),
     ("Question: 1+2", "the tokenizer loses "), ("1+2 \n?", "")],
)  # fmt: skip
def test_a_text_is_what_its_tokens_decode_to(text, fault):
    tokenizer = arithmetic.make_tokenizer()
    if not fault:
        ids = encode_text(tokenizer, "none", text, len(tokenizer))
        assert tokenizer.decode(ids) == text
        return
    with pytest.raises(UnreadableText) as caught:
        encode_text(tokenizer, "none", text, len(tokenizer))
    assert str(caught.value).startswith(f"prompt of problem 'a': {fault}")


@pytest.mark.failure(56)
def test_composed_accents_and_any_bytes_are_read(tokenizer):
    for text in ("e\u0301 = x\u00b2", " 2 \u4f60\U0001f600\n", "<|im_en|> "):
        encode_text(tokenizer, "qwen_math", text, 151646)
    # Qwen's embedding cut to its text tokens: <|im_start|> is beyond.
    message = "token id 151644: must be .* less than vocab_size=151643"
    with pytest.raises(UnreadableText, match=message):
        encode_text(tokenizer, "qwen_math", text, 151643)


@pytest.mark.failure(83)
def test_a_special_token_in_a_problem_is_named():
    tokenizer = arithmetic.make_tokenizer()
    text, size = "1+1<|endoftext|>", len(tokenizer)
    with pytest.raises(UnreadableText, match="special token '<.endoftext.>'; remove"):
        encode_text(tokenizer, "{problem}?\n", text, size)
    # The problem may be a whole chat.
    assert encode_text(tokenizer, "none", text, size)[-1] == 0


@pytest.mark.failure(90)
def test_a_completion_is_its_text_without_the_stop_token():
    tokenizer = arithmetic.make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    ids = tokenizer.encode("<think>1</think>\\boxed{2}")
    end, brace = tokenizer.eos_token_id, ids[-1]
    text = "<think>1</think>\\boxed{2}"
    assert decode_completion(tokenizer, [*ids, end], {end}) == text
    assert decode_completion(tokenizer, ids, {end, brace}) == text  # no special token
    assert decode_completion(tokenizer, [end], {end}) == ""
    assert decode_completion(tokenizer, [], {end}) == ""


@pytest.mark.failure(167)
def test_a_completion_keeps_its_first_space():
    """Llama's decoder drops it from a text that is decoded alone."""
    model = Tokenizer(BPE({"</s>": 0, "▁": 1, "0": 2, "4": 3, "▁4": 4}, [("▁", "4")]))
    strip = decoders.Strip(" ", left=1, right=0)
    model.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="</s>")
    assert tokenizer.decode([4, 2]) == "40"
    assert decode_completion(tokenizer, [4, 2, 0], {0}) == " 40"
    assert decode_completion(tokenizer, [1, 4], {0}, show_unknown=True) == "  4"


@pytest.mark.failure(91)
def test_ids_beyond_the_tokenizer_can_be_seen():
    tokenizer = arithmetic.make_tokenizer()
    ids = [tokenizer.encode("1")[0], 37, tokenizer.eos_token_id]
    assert len(tokenizer) <= 37
    assert decode_completion(tokenizer, ids, {ids[-1]}) == "1"
    shown = decode_completion(tokenizer, ids, {ids[-1]}, show_unknown=True)
    assert shown == "1<|id 37|>"


@pytest.mark.failure(97)
def test_a_prompt_is_encoded_once(monkeypatch):
    tokenizer = arithmetic.make_tokenizer()
    encode = mock.Mock(wraps=tokenizer.encode)
    monkeypatch.setattr(tokenizer, "encode", encode)
    for i in range(20):
        encode_text(tokenizer, "none", str(i), len(tokenizer))
    assert encode.call_count <= 20 + 2


@pytest.mark.failure(92)
def test_several_chat_templates_need_a_default():
    tokenizer = arithmetic.make_tokenizer()
    text = "{{ messages[0].content }}="
    tokenizer.chat_template = {"rag": text, "tool_use": text}
    with pytest.raises(ValueError, match="templates .rag, tool_use.; rename one to de"):
        encode_text(tokenizer, "model", "1+1")
    tokenizer.chat_template["default"] = text
    assert tokenizer.decode(encode_text(tokenizer, "model", "1+1")) == "1+1="


@pytest.mark.failure(57)
def test_unreadable_prompts_are_counted_or_refused():
    problems = [Problem(id=i, problem=i, answers=("1",)) for i in "abc"]
    faults = {"b": "the prompt"}
    note = _describe_faults("t", problems, faults, 0.34)
    assert note.startswith("t: 1 of 3 problems (33.33%) cannot be used, such as the pr")
    assert note.endswith("; they are left out")
    with pytest.raises(ValueError, match="config.data.unreadable=0.33, the share"):
        _describe_faults("t", problems, faults, 0.33)


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    "text", ['{"eos_token_id": ', "[]", '{"eos_token_id": "<|im_end|>"}']
)
def test_a_generation_config_that_cannot_be_read_is_named(tmp_path, text):
    path, word = tmp_path / "generation_config.json", types.SimpleNamespace()
    word.eos_token, word.get_vocab = "!", {"!": 1, "<|im_end|>": 9}.copy
    path.write_text('{"eos_token_id": [2, 3]}')
    assert default_stop_ids(tmp_path, word, vocab_size=9) == (1, 2, 3)
    (tmp_path / "config.json").write_text('{"eos_token_id": [4, 5]}')
    assert default_stop_ids(tmp_path, word, vocab_size=9) == (1, 2, 3)
    path.unlink()
    assert default_stop_ids(tmp_path, word, vocab_size=9) == (1, 4, 5)
    path.write_text('{"eos_token_id": [2, 9]}')
    with pytest.raises(ValueError, match="config.json: eos_token_id: token id 9: must"):
        default_stop_ids(tmp_path, word, vocab_size=9)
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        default_stop_ids(tmp_path, word, vocab_size=9)
    assert str(caught.value).startswith(f"{path}: damaged (")
    assert str(caught.value).endswith("; correct eos_token_id")


@pytest.mark.failure(221)
def test_a_stop_token_that_only_transformers_has_added_is_not_used(tmp_path):
    word = types.SimpleNamespace()
    word.eos_token, word.get_vocab = "<|endoftext|>", {"a": 0, "<|endoftext|>": 1}.copy
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    with pytest.raises(ValueError, match="no stop token that the model can sample"):
        default_stop_ids(tmp_path, word, vocab_size=9)
    (tmp_path / "added_tokens.json").write_text('{"<|endoftext|>": 1}')
    assert default_stop_ids(tmp_path, word, vocab_size=9) == (1,)


def test_transformers_may_be_imported_before():
    python("-c", "import transformers, rl.problems.tokenizer", check=True, timeout=120)
