"""What the pages tell a reader to type, open or call is there."""

import contextlib
import importlib
import io
import re

import pytest
from ml_collections import ConfigDict

from configs import base
from tests.other_processes import ROOT, python

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CONFIGS = sorted(ROOT.glob("configs/*.py"))


def _commands(path):
    """The shell commands of a page: lines of its blocks, and spans in backticks."""
    text = path.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return [*lines, *re.findall(r"`([^`\n]+)`", prose)]


def _python_commands():
    """(where, module, words after it) of each `python -m` of a project module."""
    found = []
    for path in PAGES:
        for line in _commands(path):
            for module, rest in re.findall(r"python -m ((?:rl|tools)[\w.]*)(.*)", line):
                rest = re.split(r" {3,}|#", rest)[0]
                words = [word.strip('[]"') for word in rest.split()]
                found.append((f"{path.name}: {line.strip()}", module, words))
    return found


COMMANDS = _python_commands()


# Two of them in one process would define the flag --config twice.
WITH_ABSL_FLAGS = {"rl.train", "tools.ablate", "tools.curate", "tools.plan"}


def _help(module, *words):
    if module in WITH_ABSL_FLAGS:
        return python("-m", module, "--help").stdout
    if (ROOT / module.replace(".", "/") / "__main__.py").is_file():
        module += ".__main__"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit):
        importlib.import_module(module).main([*words, "--help"])
    return said.getvalue()


@pytest.fixture(scope="module")
def offered():
    """The flags that each command offers, by the words that name it."""
    flag = r"--(?:\[no\])?([a-z]\w*)"
    named = {_named(module, words) for _, module, words in COMMANDS}
    return {words: set(re.findall(flag, _help(*words))) for words in named}


def _named(module, words):
    """`tools.bench update` is another command than `tools.bench sampler`."""
    if module == "tools.bench" and words and re.fullmatch("[a-z]+", words[0]):
        return module, words[0]
    return (module,)


def test_the_pages_show_commands():
    assert len(COMMANDS) > 20
    assert {"rl.train", "tools.evaluate"} <= {module for _, module, _ in COMMANDS}


def test_every_flag_in_the_pages_exists(offered):
    for where, module, words in COMMANDS:
        for word in words:
            flag = re.match(r"--([a-z]\w*)(?!\w*\.)", word)
            if flag and flag[1] != "help":  # which every command has
                assert flag[1] in offered[_named(module, words)], f"{where}: {word}"


def _has_key(config, path):
    """Whether a config takes `path`; a section without a default takes any key."""
    for name in path.split("."):
        if isinstance(config, ConfigDict) and len(config) == 0:
            return True
        if not isinstance(config, ConfigDict) or name not in config:
            return False
        config = config[name]
    return True


def test_every_config_key_in_the_pages_and_configs_exists():
    config = base.get_config()
    asked = set()
    for path in [*PAGES, *CONFIGS]:
        keys = re.findall(r"--config\.([a-z][\w.]*)=", path.read_text())
        asked |= {(path.name, key) for key in keys}
    assert len(asked) > 5
    for where, key in asked - {("README.md", "key")}:
        assert _has_key(config, key), f"{where}: --config.{key}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_key_in_backticks_exists(page):
    """`section.key` of the config; a name such as rollout.prompts may be a module."""
    config = base.get_config()
    for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)[=`]", page.read_text()):
        path = ROOT / name.replace(".", "/")
        module = any(p.with_suffix(".py").is_file() for p in (path, path.parent))
        if name.split(".")[0] in config and not module:
            assert _has_key(config, name), name


def test_every_config_file_named_in_the_pages_exists():
    for path in [*PAGES, *CONFIGS]:
        for name in re.findall(r"(?<!tests/)configs/([a-z]\w*)\.py", path.read_text()):
            assert (ROOT / f"configs/{name}.py").is_file(), f"{path.name}: {name}"


def test_every_make_target_in_the_pages_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"\.PHONY: (.*)", makefile)[1].split())
    for path in PAGES:
        for line in _commands(path):
            if target := re.match(r"make ([a-z-]+)", line):
                assert target[1] in targets, f"{path.name}: {line}"
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_every_link_and_path_in_the_pages_exists():
    for path in PAGES:
        text = path.read_text()
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (path.parent / link).exists(), f"{path.name}: {link}"
        rooms = "rl|models|sharding|rollout|tools|configs|tests|docs"
        for name in re.findall(rf"(?<![\w/.-])((?:{rooms})/[\w/]*\.(?:py|md))", text):
            assert (ROOT / name).exists() or "NAME" in name, f"{path.name}: {name}"


def test_the_pages_say_which_environment_commands_run_in():
    text = (ROOT / "README.md").read_text()
    first = min(m.start() for m in re.finditer(r"^python -m", text, re.M))
    assert 0 < text.index(". .venv/bin/activate") < first


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_python_in_the_pages_runs(page):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    for block in blocks:
        names = {}
        exec(block, names)
        for call, told in re.findall(r"^(\S.*?)  # (True|False)$", block, re.M):
            assert repr(eval(call, names)) == told, call
