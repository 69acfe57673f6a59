"""From `--config=FILE.py` and `--config.KEY=value` to a `ConfigDict`.

A config is a Python file with `get_config()`. An error in one is reported in one line.
"""

import json
import os
import pathlib
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from configs.base import get_config
from configs.schema import config_json, differences, flatten

# `--config` counts as a flag of the command that asks for it.
flags.disclaim_key_flags()

_HERE = pathlib.Path(__file__).resolve().parent


class UnreadableConfig(flags.Error):
    """The config file is missing, broken, or returns no config; one line says which."""


def define_config(help: str, *, default: str | None = None) -> flags.FlagHolder:
    """Defines the flag `--config`, and `--config.KEY` for each key of its file."""
    holder = config_flags.DEFINE_config_file("config", None, help)
    flags.FLAGS["config"].parser = _Parser()
    if default:
        flags.set_default(holder, default)
    return holder


def parse_flags(argv: Sequence[str], *, keys: Callable[[], str] = str) -> Sequence[str]:
    """For `app.run`: ends with one line where a flag, the file or a key is wrong.

    Args:
      argv: of the command.
      keys: what `--help` says of the config's keys.
    """
    if {"--help", "-help", "-h", "--helpfull"} & set(argv):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as of `--help | head`
        command = sys.modules["__main__"].__doc__
        print(f"{command}{flags.FLAGS.main_module_help()}\n{keys()}")
        sys.exit(0)
    try:
        return flags.FLAGS(argv)
    except UnreadableConfig as error:
        sys.exit(f"error: {error}")
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        text = _unknown_key(error) or " ".join(str(error).split())
        sys.exit(f"error: config: {text}")


class _Parser(flags.ArgumentParser):
    syntactic_help = "a Python file with get_config()"

    def parse(self, argument: str) -> ConfigDict:
        return read_config(argument).lock()

    def flag_type(self) -> str:
        return "config"


def read_config(name: str) -> ConfigDict:
    """Return the config of a file; `FILE.py:TEXT` gives TEXT to its `get_config`.

    Raises:
      UnreadableConfig: one line that names the file and, where it has one, the line.
    """
    file, _, text = name.partition(":")
    module = run_file(file)
    get_config = module.get("get_config")
    if "ABLATION" in module:  # each of its arms is a config
        get_config = module["ABLATION"].get_config
    if get_config is None:
        raise UnreadableConfig(f"{file}: defines no get_config()")
    try:
        config = get_config(*([text] if text else []))
    except UnreadableConfig:  # of another file, on which this one is built
        raise
    except Exception as error:
        raise UnreadableConfig(f"{file}{_blame(error, module['__file__'])}") from None
    if not isinstance(config, ConfigDict):
        kind = type(config).__name__
        raise UnreadableConfig(f"{file}: get_config() gives {kind}, not a ConfigDict")
    return config


def run_file(name: str) -> dict[str, Any]:
    """Run a config file and return what it defines, by name.

    The file's folder is added to `sys.path`, so that functions next to it are found by
    "module:function". A relative name under configs/ that is not there is looked up
    among the configs that came with this package.

    Raises:
      UnreadableConfig: as of `read_config`.
    """
    path = user_path(name)
    if not path.is_file() and path.parts[:1] == (_HERE.name,):
        path = _HERE.parent / path
    if not path.is_file():
        raise UnreadableConfig(f"{name}: no such file")
    path = path.absolute()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec"), module)
    except Exception as error:
        raise UnreadableConfig(f"{name}{_blame(error, str(path))}") from None
    return module


def _blame(error: Exception, path: str) -> str:
    """Return `:LINE: KIND: MESSAGE`; LINE is the last of the file in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == path]
    message = str(error)
    if isinstance(error, SyntaxError):
        lines = [error.lineno] if error.filename == path else []
        message = error.msg
    where = f":{lines[-1]}" if lines else ""
    reason = f"{type(error).__name__}: {' '.join(message.split())}"
    return f"{where}: {_unknown_key(error) or reason}"


def _unknown_key(error: Exception) -> str:
    """Return which key ml_collections does not know; empty for another error.

    Its own message shows the whole config, and may be in an error within an error.
    """
    while error.args and isinstance(error.args[0], Exception):
        error = error.args[0]
    text = str(error.args[0] if error.args else error)
    key = re.match(r"(?:Key )?[\"'](\w+)[\"']", text)
    if not isinstance(error, KeyError) or not key:
        return ""
    meant = re.search(r"Did you mean [\"']\w+[\"']", text)
    return f"unknown key {key[1]!r}" + (f". {meant[0]}?" if meant else "")


def user_path(text: str) -> pathlib.Path:
    """Return the path of a flag; `~` is the home folder."""
    return pathlib.Path(text).expanduser()


def expand_home(config: ConfigDict) -> None:
    """Replace `~` where it begins a text, or a part of one after a comma."""
    with config.unlocked():
        for key, value in config.items():
            if isinstance(value, ConfigDict):
                expand_home(value)
            elif isinstance(value, str) and "~" in value:
                parts = map(os.path.expanduser, value.split(","))
                config[key] = ",".join(parts)


def changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a config, as JSON, whose values are not configs/base.py's."""
    base = get_config()
    expand_home(base)  # as in the config of a run
    found = differences(config, json.loads(config_json(base)))
    own = flatten(config)
    return {key: value for key, value, _ in found if key in own}


def describe_keys() -> str:
    """Return the sections of configs/base.py as they are written there."""
    source = (_HERE / "base.py").read_text(encoding="utf-8")
    sections = source[source.index("@section") : source.index("def get_config")]
    return (
        "--config.SECTION.KEY=VALUE, where SECTION is a key of `RunConfig`, the last of"
        " these:\n\n" + sections.replace("@section\n", "").strip()
    )
