"""An exported folder is served as its policy was trained, by others too."""

import json
import os
import subprocess

import pytest
import torch
import transformers

from configs import quickstart
from configs.base import from_config
from rl.evaluate import accuracy_of
from rl.problems.templates import TEMPLATES
from rl.problems.tokenizer import AutoTokenizer
from rl.run_spec import validate
from rl.setup import make_engine
from rl.workdir.export import chat_template, commit, model_card, serve_as_trained
from rollout.types import SamplingParams
from tests.rl.examples import encode_text
from tests.rl.problems.test_templates import beginning_tokenizer
from tests.rl.workdir.test_manifest import _config
from tests.rollout.vllm import policies
from tests.tools.tiny import make_model, make_sums

TOKENS, ASKED = 40, 8


@pytest.mark.parametrize(
    "template",
    [
        *TEMPLATES,
        "{problem}?\n",
        "é \"\\n\" '{{ x }}' {% y %} {problem}\t😀\n{problem}",
    ],
)
def test_the_chat_template_makes_the_prompt_of_the_run(shared_data, template):
    tokenizer = AutoTokenizer.from_pretrained(shared_data / "qwen2_tokenizer")
    tokenizer.chat_template = chat_template(template, tokenizer)
    for problem in ("What is $1+1$? {{ messages }} {problem}\n", "\\boxed{} 你好"):
        asked = encode_text(tokenizer, template, problem)
        assert encode_text(tokenizer, "model", problem) == asked


@pytest.mark.parametrize("template", [*TEMPLATES, "Q: {problem}", "<s>{problem}?"])
def test_a_served_prompt_begins_as_a_trained_one(template, monkeypatch):
    """Servers add no begin of text to what a chat template writes: Llama's was lost."""
    llama = beginning_tokenizer()  # most words of a template are unknown to it
    monkeypatch.setattr("rl.problems.templates.check_text", lambda *_, **__: None)
    trained = encode_text(llama, template, "one two")
    llama.chat_template = chat_template(template, llama)
    message = [{"role": "user", "content": "one two"}]
    served = llama.apply_chat_template(message, add_generation_prompt=True)
    assert served["input_ids"] == trained
    assert trained[0] == 0 and 0 not in trained[1:]


def test_a_chat_template_keeps_what_it_was_trained_with():
    llama = beginning_tokenizer()
    llama.chat_template = "{{ 'two' if think and name else 'one' }}"
    template = 'model:{"think": true, "name": "x"}'
    assert chat_template(template, llama) == (
        '{% set think = true %}{% set name = "x" %}' + llama.chat_template
    )
    trained = encode_text(llama, template, "?")
    llama.chat_template = chat_template(template, llama)
    assert trained == encode_text(llama, "model", "?") == [0, 2]
    llama.chat_template = "{{ strftime_now( '%Y' ) }}"  # a server's day is another
    assert chat_template("model", llama) == '{{ "2024" }}'


@pytest.mark.failure(148)
@pytest.mark.failure(138)
@pytest.mark.failure(58)
def test_no_field_of_the_bases_generation_config_is_obeyed(tmp_path, shared_data):
    fields = {k: 7 for k in vars(transformers.GenerationConfig()) if k[0] != "_"}
    assert len(fields) > 60
    fields |= {"eos_token_id": 1, "pad_token_id": 3, "bos_token_id": 4, "new": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(fields))
    config = {"chat_template": "{{ 'another' }}", "eos_token": "<e>"}
    config |= {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["<a>"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = AutoTokenizer.from_pretrained(shared_data / "qwen2_tokenizer")
    how = dict(temperature=1.0, template="{problem}?", tokenizer=tokenizer)
    serve_as_trained(tmp_path, stop_token_ids=(5, 1), **how)
    assert json.loads((tmp_path / "generation_config.json").read_text()) == {
        "eos_token_id": [1, 5], "pad_token_id": 3, "bos_token_id": 4,
        "transformers_version": 7, "do_sample": True, "temperature": 1.0, "top_p": 1.0,
        "top_k": 0,
    }  # fmt: skip
    config = transformers.GenerationConfig.from_pretrained(tmp_path).to_diff_dict()
    assert config.keys() - {"transformers_version"} == {
        "eos_token_id", "pad_token_id", "bos_token_id", "do_sample", "top_k"
    } | ({"temperature", "top_p"} & config.keys())  # fmt: skip
    said = json.loads((tmp_path / "tokenizer_config.json").read_text())
    kept = {"eos_token": "<e>", "additional_special_tokens": ["<a>"]}
    own = {"padding_side": "left", "tokenizer_class": "PreTrainedTokenizerFast"}
    assert said == kept | own
    chat = (tmp_path / "chat_template.jinja").read_text()
    assert chat == "{{ messages[-1]['content'] }}{{ \"?\" }}"


@pytest.mark.failure(139)
def test_a_card_says_what_the_model_is():
    config = json.loads(quickstart.get_config().to_json_best_effort())
    summary = {"samples": 2, "pass@2": 1.0, "greedy_accuracy": 0.5}
    summary |= accuracy_of([[True, False], [True, True]])
    card = model_card(config, step=7, evaluations={"base": {}, "final": summary})
    head = card.split("---")[1]
    assert 'library_name: "transformers"' in head and "base_model" not in head
    assert "step 7 of 200." in card and "at commit " in card
    assert '| data.template | `"{problem}?\\n"` |' in card and "objective." not in card
    assert "- final: avg@2 75.0%, pass@2 100.0%, greedy 50.0% on 2 problems" in card
    assert "- base" not in card
    for revision in ("", "@refs/pr/1"):
        config["model"] |= {"maker": "", "path": f"Qwen/Qwen2.5-0.5B{revision}"}
        card = model_card(config, step=1, evaluations={})
        assert 'base_model: "Qwen/Qwen2.5-0.5B"\n' in card
    config["model"]["path"] = "/home/me/models/small"
    config["data"]["train"] = "/home/me/a.jsonl,~/b c/d.jsonl,here/e.jsonl"
    config["data"]["template"] = "<a>/b/</a> {problem}"
    card = model_card(config, step=1, evaluations={})
    assert "# small, trained by" in card and '| model.path | `"small"` |' in card
    assert '| data.train | `"a.jsonl,d.jsonl,here/e.jsonl"` |' in card
    assert '| data.template | `"<a>/b/</a> {problem}"` |' in card


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run's export, what was asked, and the run's own greedy completions.

    A completion of the run ends at either of two tokens; the base names one of them.
    """
    folder = tmp_path_factory.mktemp("exported")
    make_model(folder / "base")
    of_the_base = {"eos_token_id": 0, "max_new_tokens": 2, "no_repeat_ngram_size": 1}
    of_the_base |= {"num_beams": 4, "min_new_tokens": TOKENS, "suppress_tokens": [20]}
    text = json.dumps(of_the_base)
    (folder / "base" / "generation_config.json").write_text(text)
    make_sums(folder / "train.jsonl", 40)
    make_sums(folder / "eval.jsonl", 8)
    c = _config(folder)
    c.data.template = "{problem}="
    c.rollout.slots = 8
    c.export.dtype = "float32"
    c.model.dtype = "float32"
    c.rollout.stop_token_ids = (0, 20)
    plan = validate(from_config(c))
    engine = make_engine(plan, folder / "work")
    engine.publish(0)
    problems = plan.train[:ASKED]
    prompts = [ids.tolist() for ids in plan.train_set.prompts[:ASKED]]

    def sample(*stops):
        greedy = dict(n=1, max_tokens=TOKENS, temperature=0.0)
        params = SamplingParams(**greedy, stop_token_ids=stops)
        return [g[0].token_ids.tolist() for g in engine.sample(prompts, params, seed=0)]

    # A token that random weights do say, but not as the first one.
    second = next(t for row in sample(0) for t in row[2:] if t and t not in row[:2])
    ended = sample(0, second)
    assert any(row[-1] == second for row in ended)
    how = dict(template=c.data.template, tokenizer=plan.tokenizer, temperature=1.0)
    assets = folder / "work" / "assets"
    serve_as_trained(assets, stop_token_ids=(0, second), **how)
    engine.export(str(folder / "hf"), card="# a card\n", dtype="float32")
    engine.close()
    return folder / "hf", [p.problem for p in problems], ended


@pytest.mark.failure(47)
def test_transformers_ends_where_the_run_does(exported):
    folder, asked, ended = exported
    assert (folder / "README.md").read_text() == "# a card\n"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for problem, tokens in zip(asked, ended, strict=True):
        chat = [{"role": "user", "content": problem}]
        how = dict(add_generation_prompt=True, return_tensors="pt", return_dict=True)
        prompt = tokenizer.apply_chat_template(chat, **how)
        with torch.no_grad():
            said = model.generate(**prompt, max_new_tokens=TOKENS, do_sample=False)
        # With the base's single end token it would continue to the limit.
        assert said[0, prompt["input_ids"].shape[1] :].tolist() == tokens


ASK = """
import json, sys
from vllm import LLM

if __name__ == "__main__":
    folder, tokens, *asked = sys.argv[1:]
    llm = LLM(folder, max_model_len=96, dtype="float32", enforce_eager=True)
    drawing = llm.get_default_sampling_params()
    drawing.temperature, drawing.max_tokens = 0.0, int(tokens)
    chats = [[{"role": "user", "content": problem}] for problem in asked]
    answers = llm.chat(chats, drawing)
    print("ANSWERS", json.dumps([list(a.outputs[0].token_ids) for a in answers]))
"""


@pytest.mark.vllm
@pytest.mark.failure(47)
def test_vllm_ends_where_the_run_does(exported, tmp_path):
    policies.needs_vllm()
    folder, asked, ended = exported
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    # Else it asks for nine tenths of the machine's memory.
    env = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    command = [policies.PYTHON, script, folder, str(TOKENS), *asked]
    how = dict(capture_output=True, text=True, cwd=tmp_path, env=env)
    done = subprocess.run(command, **how)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (x for x in done.stdout.splitlines() if x.startswith("ANSWERS"))
    answers = json.loads(line.removeprefix("ANSWERS "))
    assert answers == ended


@pytest.mark.failure(109)
def test_the_commit_is_that_of_this_code(tmp_path, monkeypatch):
    known = commit()
    assert known.startswith("commit ")
    other = str(tmp_path / ".git")
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), (*author, "commit", "-qm", "x", "--allow-empty")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setenv("GIT_DIR", other)  # as in a hook of that repository
    assert commit() == known
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert commit() == "an unknown commit"
