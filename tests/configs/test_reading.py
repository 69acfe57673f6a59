"""How a config file is found and read, and what is said where it cannot be."""

import importlib
import json
import pathlib
import sys

import pytest
from ml_collections import ConfigDict

from configs import base, reading
from configs.reading import UnreadableConfig, expand_home, read_config
from configs.schema import config_json
from tests import forked
from tests.other_processes import ROOT, make_config

GOOD = "from configs import base\n\n\ndef get_config(text=''):\n"


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_every_section_is_described_with_its_keys():
    text = reading.describe_keys()
    config = base.get_config()
    for name, section in config.items():
        assert f"\n    {name}: " in text
        for key in section if isinstance(section, ConfigDict) else ():
            assert f"\n    {key}: " in text
    assert "group_size: Annotated[int, Range(2)] = 16  # G, completions per" in text
    assert max(map(len, text.splitlines())) <= 88


@pytest.mark.failure(156)
@pytest.mark.parametrize(
    "text,message",
    [
        (None, "mine.py: no such file"),
        (b"c = \n", "mine.py:1: SyntaxError: invalid syntax"),
        (b"def get_config():\n    return nope\n",
         "mine.py:2: NameError: name 'nope' is not defined"),
        (b"import nowhere_to_be_found\n",
         "mine.py:1: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        (b"c = 1\n", "mine.py: must define get_config()"),
        (b"def get_config():\n    return {}['a']\n", "mine.py:2: KeyError: 'a'"),
        (b"from configs import base\n\n\ndef get_config():\n"
         b"    c = base.get_config()\n    c.stepps = 20\n    return c\n",
         "mine.py:6: unknown key 'stepps'. Did you mean \"steps\"?"),
        (b"from configs import base\n\n\ndef get_config():\n"
         b"    c = base.get_config()\n    c.optimizer.learning_rate = 1e-5\n",
         "mine.py:6: unknown key 'learning_rate'; use config.schedule.learning_rate"),
        (b"def get_config():\n    pass\n",
         "mine.py: get_config() must return a ConfigDict, not NoneType"),
        (b"x = '\xe4'\n", "mine.py:1: SyntaxError: (unicode error) 'utf-8' codec"),
    ],
)  # fmt: skip
def test_an_unreadable_file_is_one_line(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        pathlib.Path("mine.py").write_bytes(text)
    with pytest.raises(UnreadableConfig) as caught:
        read_config("mine.py")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 150


@pytest.mark.failure(88)
@pytest.mark.parametrize(
    "locale,name,message",
    [
        ("utf-8", "caf\udce9", "is not valid UTF-8; rename the file"),
        ("ascii", "caf\udcc3\udca9", "cannot decode this argument; set PYTHONUTF8"),
    ],
)
def test_an_argument_that_was_not_decoded_is_one_line(
    monkeypatch, locale, name, message
):
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: locale)
    with pytest.raises(SystemExit, match=message):
        reading.parse_flags(["train", f"--config.data.train={name}.jsonl"])


@pytest.mark.failure(156)
def test_text_after_a_colon_is_given_to_get_config(tmp_path):
    with pytest.raises(UnreadableConfig, match="the file has no variants; remove ':x'"):
        read_config("configs/quickstart.py:x")
    make_config(tmp_path / "mine.py", "c.compiled = text", of="base")
    assert read_config(f"{tmp_path / 'mine.py'}:here").compiled == "here"
    assert read_config(str(tmp_path / "mine.py")).compiled == ""


def test_configs_of_the_package_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_config("configs/quickstart.py").rollout.max_prompt_tokens == 8
    # One that lies there comes first.
    pathlib.Path("configs").mkdir()
    make_config(pathlib.Path("configs/quickstart.py"), "c.steps = 3", of="base")
    assert read_config("configs/quickstart.py").steps == 3
    with pytest.raises(UnreadableConfig, match="^quickstart.py: no such file; "):
        read_config("quickstart.py")


def test_home_is_written_out_in_paths_alone(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    config = base.get_config()
    config.compiled = "~/compiled"
    config.data.train = "a.jsonl,~/b.jsonl"
    config.data.template = "about ~{problem}, ~ 5"
    config.model.maker_args = ConfigDict({"cache": "~"})
    expand_home(config.lock())
    assert config.compiled == "/home/ada/compiled"
    assert config.data.train == "a.jsonl,/home/ada/b.jsonl"
    assert config.data.template == "about ~{problem}, ~ 5"
    assert config.model.maker_args.cache == "/home/ada"
    assert config.is_locked


@pytest.mark.failure(180)
def test_changes_are_those_from_the_base():
    c = base.get_config()
    expand_home(c)
    assert reading.changes(json.loads(config_json(c))) == {}
    c.steps = 7
    c.data.train_args = {"limit": None}
    assert reading.changes(json.loads(config_json(c))) == {
        "steps": 7, "data.train_args.limit": None
    }  # fmt: skip


def test_the_folder_of_a_result_is_created(tmp_path):
    file = tmp_path / "evaluation" / "result.json"
    assert reading.output_file(str(file)) == file and file.parent.is_dir()


@pytest.mark.failure(94)
@pytest.mark.parametrize("tool", ["checkpoint", "evaluate", "grade", "verify"])
def test_a_result_that_could_not_be_written_is_refused_first(tmp_path, capsys, tool):
    main = importlib.import_module(f"tools.{tool}").main
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as caught:
        main(["--json", str(tmp_path / "file" / "no" / "out.json")])
    assert caught.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"{tmp_path}/file/no cannot be created or written; give another" in last


@pytest.mark.failure(120)
@pytest.mark.failure(123)
@pytest.mark.parametrize("tool", ["convert", "evaluate", "fetch", "grade"])
def test_an_address_and_an_empty_variable_are_not_folders(
    tmp_path, monkeypatch, capsys, tool
):
    monkeypatch.chdir(tmp_path)
    main = importlib.import_module(f"tools.{tool}").main
    for out, message in {
        "gs://bucket/out": "gs://bucket/out: is an address, not a path of a file",
        "": "argument --out: the value is empty, perhaps because a shell variable is",
    }.items():
        with pytest.raises(SystemExit) as caught:
            main(["--out", out])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.failure(132)
def test_a_file_is_not_a_folder_and_a_folder_not_a_file(tmp_path):
    file = tmp_path / "sums.jsonl"
    file.touch()
    for path in (file, file / "new"):
        with pytest.raises(
            reading.UnusablePath, match="sums.jsonl is a file; give a folder"
        ):
            reading.output_folder(str(path))
    with pytest.raises(reading.UnusablePath, match="is a folder; give a file"):
        reading.output_file(str(tmp_path))
    assert reading.output_folder(str(tmp_path)) == tmp_path


@pytest.mark.failure(124)
def test_a_list_may_be_given_in_several_flags(monkeypatch):
    evaluate = importlib.import_module("tools.evaluate")
    given = ["--benchmarks=a,b", "--benchmarks=c", "--compare", "d", "--compare", "e"]
    parsed = evaluate._parse(given)
    assert parsed.benchmarks == ["a", "b", "c"] and parsed.compare == ["d", "e"]


@pytest.mark.failure(121)
def test_the_saved_config_of_a_run_is_not_a_config_file(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(config_json(base.get_config()))
    with pytest.raises(UnreadableConfig, match="is a Python file; give the .py file"):
        read_config(str(file))


@pytest.mark.failure(111)
@pytest.mark.parametrize(
    "start",
    [
        b"\xef\xbb\xbf",
        b"# coding: latin-1\n# caf\xe9\n",
        b"from __future__ import annotations\nimport dataclasses\n"
        b"@dataclasses.dataclass\nclass Size:\n    steps: int = 3\n",
    ],
)
def test_a_file_that_python_can_import_is_read(tmp_path, start):
    file = tmp_path / "mine.py"
    file.write_bytes(start + GOOD.encode() + b"    return base.get_config()\n")
    assert read_config(str(file)).steps == base.get_config().steps


@pytest.mark.failure(111)
@pytest.mark.parametrize("name", ["mine.py", "link.py"])
def test_a_file_or_a_link_to_it_finds_the_modules_beside_the_file(tmp_path, name):
    (tmp_path / "real").mkdir()
    module = f"module_{name.removesuffix('.py')}"
    (tmp_path / "real" / f"{module}.py").write_text("STEPS = 7")
    file = tmp_path / "real" / "mine.py"
    text = "    c = base.get_config()\n    c.steps = STEPS\n    return c\n"
    file.write_text(f"from {module} import STEPS\n{GOOD}{text}")
    (tmp_path / "link.py").symlink_to(file)
    found = file if name == "mine.py" else tmp_path / name
    assert read_config(str(found)).steps == 7


QUICKSTART = "--config=configs/quickstart.py"
ENTRY = "config.curriculum.stages[0].steps"
FLAGS = [
    ([QUICKSTART, "--group_size=4"],
     "unknown flag --group_size; write --config.rollout.group_size"),
    ([QUICKSTART, "--workdir="],
     "flag --workdir=: the value is empty, perhaps because a shell variable is not set;"
     " give one"),
    ([QUICKSTART, "--config.optimizer.max_grad_norm=None"],
     "flag --config.optimizer.max_grad_norm=None: could not convert string to float:"
     " 'None'; see --help"),
    ([QUICKSTART, "--workdir=a[1]"],
     "--workdir=a[1]: must not contain a bracket, which Orbax reads as a pattern"),
    (["--confg=a"], "unknown flag --confg; write --config"),
    (["--config.steps=4"],
     "unknown flag --config.steps; give --config=configs/NAME.py too"),
    ([QUICKSTART, f"--{ENTRY}=5"],
     f"{ENTRY}: no such entry can be set; set the whole list or section"),
    ([QUICKSTART, "--config.batch.row_lengths[0]=64"], "config.batch.row_lengths[0]:"
     " no such entry can be set; set the whole list or section"),
    ([QUICKSTART, "--config.model.path.more=a"],
     "config.model.path.more: no such entry can be set; set the whole list or section"),
    ([QUICKSTART, "--noconfig.nope"], "config.nope: unknown key 'nope'"),
    ([QUICKSTART, "--config.get=3"], "config.get: unknown key 'get'"),
    ([QUICKSTART, "--config.data.train_args.d=3"], "config.data.train_args.d: unknown"
     " key 'd'; write --config.data.train_args=\"{'d': 'VALUE'}\""),
    ([QUICKSTART, "config.steps=3"],
     "unexpected argument 'config.steps=3'; write --NAME=VALUE"),
    # Values after a space may look like keys.
    (["--config", "config.nope", "--config.steps", "3"],
     "config.nope: no such file; give the path of a Python file"),
    ([QUICKSTART, "--config.data.fields=problem=question"],
     "flag --config.data.fields=problem=question: must be a dict, as in Python: "
     "\"{'NAME': 'VALUE'}\""),
    ([QUICKSTART, "--flagfile=no"],
     "Unable to open flagfile: [Errno 2] No such file or directory: 'no'"),
    ([QUICKSTART, QUICKSTART, "--config.steps=4"],
     "The flag 'config.steps' is defined twice; give --config only once"),
]  # fmt: skip


@pytest.mark.failure(125)
@pytest.mark.failure(131)
@pytest.mark.failure(170)
@pytest.mark.failure(186)
def test_a_flag_that_cannot_be_used_is_one_line(tmp_path):
    commands = [[*arguments, "--dry_run"] for arguments, _ in FLAGS]
    needs = ("rl.setup", "rl.loop")
    ends = forked.starts(tmp_path, "rl.train", commands, needs=needs, cwd=ROOT)
    for done, (_, message) in zip(ends, FLAGS, strict=True):
        assert done.returncode == 1
        plan = "plan: checks the config, the model and the data\n"
        assert done.stderr.removeprefix(plan) == f"error: {message}\n"


@pytest.mark.failure(187)
@pytest.mark.parametrize(
    "given, names", [("truncated, unjudged", ("truncated", "unjudged")), ("", ())]
)
def test_a_list_of_names_may_have_commas(given, names):
    config = base.get_config()
    config.alarms.stop_on = (given,)  # as ml_collections reads --config.KEY=a,b
    assert base.from_config(config).alarms.stop_on == names
