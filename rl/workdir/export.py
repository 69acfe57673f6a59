"""Makes the generation config, chat template and model card of an exported folder.

Servers then use the run's stop tokens and prompt template. The base model's own files
may list only one of two stop tokens, or a chat template that was not used in training.
"""

import json
import os
import pathlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from configs.reading import changes
from models.hub import split_id
from rl.evaluate import headline
from rl.files import markdown_table, replace, replace_json
from rl.problems import templates
from rl.problems.tokenizer import Tokenizer

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Keys retained from the base's generation config. Others, such as lengths and
# penalties, were not used in training but would be applied by servers.
_RETAINED = ("bos_token_id", "pad_token_id", "transformers_version")

# The folders of quoted absolute paths, which tell readers only of this machine.
_FOLDERS = re.compile(r'(?<=[",])[/~][^",\n]*/(?=[^",/])')


def serve_as_trained(
    folder: pathlib.Path,
    *,
    stop_token_ids: Sequence[int],
    temperature: float,
    template: str,
    tokenizer: Tokenizer,
) -> None:
    """Replaces the generation config and chat template in a copy of the base's files.

    `temperature` is the sampling temperature at the end of the run.
    """
    path = folder / "generation_config.json"
    of_base = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    retained = {key: of_base[key] for key in _RETAINED if key in of_base}
    stops = sorted(stop_token_ids)
    # Set all sampling parameters: servers have other defaults for missing ones.
    sampling = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
    replace_json(path, retained | {"eos_token_id": stops} | sampling)
    path = folder / "tokenizer_config.json"
    if path.is_file():
        config = json.loads(path.read_text("utf-8"))
        config.pop("chat_template", None)  # a second template
        # With padding on the right, a batch of prompts would continue the padding.
        config["padding_side"] = "left"
        # transformers 4 cannot read these two values of transformers 5.
        if config.get("tokenizer_class") == "TokenizersBackend":
            config["tokenizer_class"] = "PreTrainedTokenizerFast"
        if isinstance(config.get("extra_special_tokens"), list):
            config["additional_special_tokens"] = config.pop("extra_special_tokens")
        replace_json(path, config)
    (folder / "chat_template.json").unlink(missing_ok=True)
    replace(folder / "chat_template.jinja", chat_template(template, tokenizer))


def chat_template(template: str, tokenizer: Tokenizer) -> str:
    """Returns a Jinja chat template that renders a single user message as in training.

    The template includes the begin-of-text token, if any: servers do not add it.
    """

    def literal(value: Any) -> str:  # JSON literals are valid in Jinja
        return json.dumps(value, ensure_ascii=False)

    if (arguments := templates.chat_arguments(template)) is not None:
        given = "".join(f"{{% set {k} = {literal(v)} %}}" for k, v in arguments.items())
        return given + templates.own_chat_template(tokenizer)
    text = templates.TEMPLATES.get(template, template)
    begin = templates.begin_of_text(tokenizer)
    if not text.startswith(begin):
        text = begin + text
    parts = [
        f"{{{{ {literal(part)} }}}}" if part else ""
        for part in text.split(templates.SLOT)
    ]
    return "{{ messages[-1]['content'] }}".join(parts)


def model_card(
    config: Mapping[str, Any],
    *,
    step: int,
    evaluations: Mapping[str, Mapping[str, Any]],
) -> str:
    """Returns the text of an exported folder's README.md.

    `config` is the content of config.json, `step` the step of the exported weights.
    `evaluations` has results of `evaluate_sets` by name; empty ones are left out.
    """
    model = config["model"]
    base = model["path"] or model["maker_args"].get("package") or model["maker"]
    if pathlib.Path(base).exists() or base.startswith(("/", "~")):
        base = pathlib.Path(base).name
    head: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["reinforcement-learning", "grpo", "jax"],
    }
    name, _ = split_id(model["path"])
    if name.count("/") == 1 and not pathlib.Path(model["path"]).exists():
        head["base_model"] = name
    settings = [[key, f"`{json.dumps(v)}`"] for key, v in changes(config).items()]
    results = [f"- {name}: {headline(s)}" for name, s in evaluations.items() if s]
    lines = [
        "---",
        *(f"{key}: {json.dumps(value)}" for key, value in head.items()),  # valid YAML
        "---",
        "",
        f"# {base}, trained by reinforcement learning",
        "",
        "Trained with Compass Thinker in JAX, the recipe of arXiv 2508.08909, at "
        f"{commit()}.",
        f"This is step {step} of {config['steps']}. The chat template of this folder is"
        " the prompt template of the run.",
        "",
        "## Evaluation",
        "",
        *(results or ["The model was not evaluated."]),
        "",
        "## Settings that differ from the defaults",
        "",
        *markdown_table(["key", "value"], settings),
    ]
    return _FOLDERS.sub("", "\n".join(lines))


def commit() -> str:
    """Describes this code's git commit, and whether files differ from the commit."""

    # In a git hook, these variables name another repository.
    others = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    env = {k: v for k, v in os.environ.items() if k not in others}

    def git(*words: str) -> str:
        command = ["git", "-C", str(_ROOT), *words]
        quiet = subprocess.DEVNULL
        return subprocess.check_output(command, text=True, env=env, stderr=quiet)

    try:
        changes = " with changes" if git("status", "--porcelain").strip() else ""
        return f"commit {git('rev-parse', 'HEAD').strip()}{changes}"
    except (OSError, subprocess.CalledProcessError):  # no git, or not a repository
        return "an unknown commit"
