"""Reads a `ConfigDict` from `--config=FILE.py` and `--config.KEY=value`."""

import argparse
import contextlib
import inspect
import json
import os
import pathlib
import re
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags import config_path

from configs.base import get_config
from configs.schema import config_json, flatten

# `--help` then lists `--config` as a flag of the command, not of this module.
flags.disclaim_key_flags()

T = TypeVar("T")

_HERE = pathlib.Path(__file__).resolve().parent
_NO_ENTRY = "no such entry can be set; set the whole list or section"
_NO_FLAG = r"\1: cannot be set by a flag; set it in the config file"
# Replacements in messages of absl and ml_collections, which say what to do.
_ADVICE = {
    r": Failed to parse.*": ": must be a dict, as in Python: \"{'NAME': 'VALUE'}\"",
    r"\. First from.*": "; give --config only once",
    r"^Type .* of field (\S+) is not supported.*": _NO_FLAG,
    r"^\d+ is not a valid index .*\(in: (\S+)\)$": rf"config.\1: {_NO_ENTRY}",
    r"^flag --config\..*": r"\g<0>; see --help",
}
_EMPTY = "the value is empty, perhaps because a shell variable is not set; give one"


class UnreadableConfig(flags.Error):
    """Reports a config file that is missing or from which no config can be read."""


class Parser(flags.ArgumentParser[T]):
    """Parses a flag of absl with a function, such as `output_folder`."""

    def __init__(self, convert: Callable[[str], T]):
        self._convert = convert

    def parse(self, argument: str) -> T:
        return self._convert(argument)


def define_config(help: str, *, default: str | None = None) -> flags.FlagHolder:
    """Defines the flag `--config`, and `--config.KEY` for each key of that config."""
    try:
        holder = config_flags.DEFINE_config_file("config", None, help)
        flags.FLAGS["config"].parser = Parser(_read_for_flags)
        flags.FLAGS["config"].parser.syntactic_help = "a Python file with get_config()"
        if default:
            flags.set_default(holder, default)
    except flags.Error as error:  # of a file of --flagfile, or a key of the default
        sys.exit(f"error: {_explain(error)}")
    return holder


def parse_flags(argv: Sequence[str], *, keys: Callable[[], str] = str) -> Sequence[str]:
    """Parses the flags for `app.run`; exits after `--help`, or with a one-line error.

    Replaces `~` in the config. `keys` returns the text that `--help` prints about the
    keys of the config.
    """
    if {"--help", "-help", "-h", "--helpfull"} & set(argv):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `--help | head` ends quietly
        os.environ["COLUMNS"] = "88"  # absl raises an error for a small number
        command = sys.modules["__main__"].__doc__ or ""
        print(f"{command}{flags.FLAGS.main_module_help()}\n{keys()}")
        sys.exit(0)
    for argument in argv:
        if re.search("[\udc80-\udcff]", argument):  # bytes that were not decoded
            cause = "the locale cannot decode this argument; set PYTHONUTF8=1"
            if sys.getfilesystemencoding() == "utf-8":
                cause = "this argument is not valid UTF-8; rename the file or folder"
            sys.exit(f"error: {argument!r}: {cause}")
    try:
        rest = flags.FLAGS(argv)
    except (flags.Error, AttributeError, LookupError, TypeError, ValueError) as error:
        sys.exit(f"error: {_explain(error)}")
    if len(rest) > 1:
        sys.exit(f"error: unexpected argument {rest[1]!r}; write --NAME=VALUE")
    if flags.FLAGS["config"].value is not None:
        expand_home(flags.FLAGS["config"].value)
    return rest


def _explain(error: Exception) -> str:
    """Returns an error of absl or ml_collections in one line, with advice."""
    text = " ".join(str(error).split()).removeprefix("ERROR:: ")
    if isinstance(error, flags.UnrecognizedFlagError):
        flag, config = error.flagname, flags.FLAGS["config"].value
        meant = re.findall(r"Did you mean: (\S+) \?$", text)
        meant += _keys_named(flag, config or get_config())
        advice = f"write --{' or --'.join(meant)}" if meant else "see --help"
        if flag.startswith("config.") and config is None:
            advice = "give --config=configs/NAME.py too"
        return f"unknown flag --{flag}; {advice}"
    for part, better in _ADVICE.items():
        if re.search(part, text):
            return re.sub(part, better, text)
    return text


def _read_for_flags(file: str) -> ConfigDict:
    """Reads a config; raises UnreadableConfig if it lacks the key of a flag."""
    config = read_config(file).lock()
    for argument in flags.FLAGS.read_flags_from_files(sys.argv, force_gnu=False):
        if flag := re.match(r"--?(?:no)?config\.([^=]+)", argument):
            _check_key(flag[1], config)
    return config


def _check_key(key: str, config: ConfigDict) -> None:
    try:
        value = config_path.get_value(key, config)
        if callable(value):  # a method of ConfigDict, which is found like a key
            raise KeyError(repr(key.rpartition(".")[2]))
    except (LookupError, TypeError, ValueError) as error:
        name, wrong = _unknown_key(error, config)
        above = f"config.{key}".rpartition(f".{name}")[0]
        if above.endswith(("_args", ".fields")) and "Did you mean" not in wrong:
            value = f"{{'{name}': 'VALUE'}}"
            wrong = f'unknown key {name!r}; write --{above}="{value}"'
        raise UnreadableConfig(f"config.{key}: {wrong or _NO_ENTRY}") from None


def read_config(name: str) -> ConfigDict:
    """Returns the config of "FILE.py" or "FILE.py:TEXT".

    TEXT is the argument of the file's `get_config`.

    Raises:
      UnreadableConfig: the file is missing, fails, or gives no ConfigDict. The message
        is one line with the file, the line number if known, and the error.
    """
    file, _, text = name.partition(":")
    module = run_file(file)
    if "get_config" not in module:
        raise UnreadableConfig(f"{file}: must define get_config()")
    if text and not inspect.signature(module["get_config"]).parameters:
        raise UnreadableConfig(f"{name}: the file has no variants; remove ':{text}'")
    try:
        config = module["get_config"](*([text] if text else []))
    except UnreadableConfig:  # raised by another config file that this one reads
        raise
    except Exception as error:
        raise UnreadableConfig(f"{file}{_blame(error, module['__file__'])}") from None
    if not isinstance(config, ConfigDict):
        kind = type(config).__name__
        raise UnreadableConfig(
            f"{file}: get_config() must return a ConfigDict, not {kind}"
        )
    return config


def run_file(name: str) -> dict[str, Any]:
    """Runs a config file and returns its global variables by name.

    The file's folder is added to `sys.path`, so that "module:function" in the config
    can name a module in that folder. If a relative path under configs/ does not exist,
    the file of that name in this package is used. Raises UnreadableConfig if the file
    is missing or raises an error.
    """
    path = pathlib.Path(name).expanduser()
    if not path.is_file() and path.parts[:1] == (_HERE.name,):
        path = _HERE.parent / path
    if not path.is_file():
        wrong = "is a folder" if name and path.is_dir() else "no such file"
        raise UnreadableConfig(f"{name}: {wrong}; give the path of a Python file")
    if path.suffix in (".json", ".yaml", ".yml", ".toml"):
        raise UnreadableConfig(
            f"{name}: a config is a Python file; give the .py file of the run, with"
            " its changes as --config.KEY=VALUE"
        )
    path = path.absolute()
    for folder in (path.resolve().parent, path.parent):  # differ for a link to a file
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    try:
        return runpy.run_path(str(path))
    except Exception as error:
        raise UnreadableConfig(f"{name}{_blame(error, str(path))}") from None


def _blame(error: Exception, path: str) -> str:
    """Returns ":LINE: MESSAGE", or ": MESSAGE" for an error outside the file `path`."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == path]
    message = str(error)
    if isinstance(error, SyntaxError):
        lines = [error.lineno] if error.filename == path else []
        message = error.msg
    where = f":{lines[-1]}" if lines else ""
    reason = f"{type(error).__name__}: {' '.join(message.split())}"
    return f"{where}: {_unknown_key(error)[1] or reason}"


def _unknown_key(error: Exception, config: ConfigDict | None = None) -> tuple[str, str]:
    """Returns an unknown key and a short message; two empty texts for other errors.

    The message of ml_collections would contain the whole config.
    """
    while error.args and isinstance(error.args[0], Exception):
        error = error.args[0]
    text = str(error.args[0] if error.args else error)
    key = re.match(r"(?:Key )?[\"'](\w+)[\"']", text)
    if not isinstance(error, KeyError) or not key:
        return "", ""
    meant = re.search(r"Did you mean [\"']\w+[\"']", text)
    hint = f". {meant[0]}?" if meant else ""
    if elsewhere := _keys_named(key[1], config or get_config()):
        hint = f"; use {' or '.join(elsewhere)}"
    return key[1], f"unknown key {key[1]!r}{hint}"


def _keys_named(name: str, config: ConfigDict) -> list[str]:
    """Returns the dotted keys of a config that end in `name`."""
    known = flatten(config.to_dict())
    return [f"config.{key}" for key in known if key.rpartition(".")[2] == name]


class UnusablePath(argparse.ArgumentTypeError, ValueError):
    """Signals that a flag names an address, or a file that cannot be written."""


def user_path(text: str) -> pathlib.Path:
    """Converts the value of a flag to a path, with `~` replaced by the home folder.

    Raises UnusablePath for an address such as gs://BUCKET/PATH, which would otherwise
    be a path below the current folder, and for "", which would be this folder.
    """
    if not text:
        raise UnusablePath(_EMPTY)
    if "://" in text:
        raise UnusablePath(
            f"{text}: is an address, not a path of a file system; give a local or"
            " mounted path"
        )
    return pathlib.Path(text).expanduser()


def output_folder(text: str) -> pathlib.Path:
    """Converts a flag's value to a path; raises UnusablePath if it is below a file."""
    path = user_path(text)
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise UnusablePath(f"{path}: {part} is a file; give a folder")
    return path


def comma_separated(text: str) -> list[str]:
    """Splits a flag at commas and expands `~`; raises UnusablePath if it is empty."""
    if not text:
        raise UnusablePath(_EMPTY)
    return [os.path.expanduser(part) for part in text.split(",") if part]


def output_file(text: str) -> pathlib.Path:
    """Converts a flag's value to a path, and creates the folder of this file.

    Raises UnusablePath if the path is a folder, or the folder cannot be written.
    """
    path = user_path(text)
    if path.is_dir():
        raise UnusablePath(f"{path}: is a folder; give a file")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK)):
        raise UnusablePath(
            f"{path}: the folder {path.parent} cannot be created or written; give"
            " another file"
        )
    return path


def expand_home(config: ConfigDict) -> None:
    """Replaces a leading `~` by the home folder in the text values of a config.

    A text may be several paths, separated by commas.
    """
    with config.unlocked():
        for key, value in config.items():
            if isinstance(value, ConfigDict):
                expand_home(value)
            elif isinstance(value, str) and "~" in value:
                config[key] = ",".join(map(os.path.expanduser, value.split(",")))


def changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that differ from the defaults, by dotted key.

    `config` consists of nested dicts of JSON values. In its texts, `~` is already
    replaced by `expand_home`.
    """
    base = get_config()
    expand_home(base)
    default = flatten(json.loads(config_json(base)))
    given = flatten(config).items()
    return {k: v for k, v in given if k not in default or v != default[k]}


def describe_keys() -> str:
    """Returns the source text of the sections in configs/base.py, for `--help`."""
    source = (_HERE / "base.py").read_text(encoding="utf-8")
    sections = source[source.index("class ") : source.index("def get_config")]
    return (
        "--config.SECTION.KEY=VALUE, where SECTION is a key of `RunConfig`, the last of"
        " these:\n\n" + sections.replace("(Section):", ":").strip()
    )
