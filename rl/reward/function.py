"""Defines the contract of user reward functions, and calls them in workers.

    def score(completion: str, problem: Problem) -> float | dict
    def score(completions: list[str], problems: list[Problem]) -> list[float | dict]

A function with the arguments `completions, problems` receives all completions of one
problem in one call. Both forms may be `async`. A dict is {"reward": number, "correct":
bool, "components": {name: number}}; "correct" and "components" are optional. In a dict,
a reward of None means that the completion could not be judged. Other results and
exceptions are errors. Their message names the function, its line, the problem and a
completion.
"""

import asyncio
import functools
import inspect
import math
import os
import pathlib
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rl.errors import located, short_path
from rl.files import sha256
from rl.packages import NAMES
from rl.problems.functions import load_function
from rl.problems.types import Problem
from rl.processes.streams import outlast_output
from rl.reward.verifier import Score
from rl.verifier import Verdict, extract_answer

_KEYS = ("reward", "correct", "components")
# Maximum magnitude of a reward: float32 represents all integers up to this one.
LARGEST = 2**24
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LIBRARY = sysconfig.get_path("stdlib") + os.sep


class Form(NamedTuple):
    """Describes a user's reward function."""

    batch: bool  # whether the arguments are (completions, problems)
    grouped: bool  # whether a worker receives all completions of a problem together
    place: str  # `file:line` of the function
    files: Mapping[str, str]  # see `_files_beside`


class Fault(NamedTuple):
    """Holds the one-line error message about a user's function."""

    text: str


class _Broken(Exception):
    """Signals a return value that breaks the contract."""


def open_function(
    where: str,
    key: str,
    right_from: float,
    after: str | None,
    files: Mapping[str, str] | None,
    problem: Problem | None,
) -> Callable[[Sequence[str] | None], Form | list[Score] | Fault]:
    """Loads a user's "module:function" and returns the function that a worker runs.

    The returned function computes a `Score` for each completion of `problem`. Called
    with None, it returns the `Form` of the user's function. If the user's function
    cannot be loaded or fails, the returned function returns a `Fault`.

    `files` are the `Form.files` from the start of the run. If this process imported
    another version of a file, the returned function returns a `Fault`. If `files` is
    None, any version is accepted.
    """
    named = f"{key}={where!r}"
    outlast_output()  # the function may print
    try:
        function = load_function(where, key=key)
        if not callable(function):
            raise ValueError(f"{named}: must be a function, not {function!r}")
        form = _form(function, named, where.partition(":")[0])
        # Files that only calls import are known only to workers that made such calls.
        stated, now = files or {}, form.files
        if edited := [f for f in stated if now.get(f, stated[f]) != stated[f]]:
            raise ValueError(
                f"{named}: {edited[0]}: the file was edited after the start of the run,"
                " and a worker had to be replaced; start the same command again, which"
                " uses the new file"
            )
    except ValueError as error:
        fault = Fault(str(error))
        return lambda _: fault

    def work(texts: Sequence[str] | None) -> Form | list[Score] | Fault:
        if texts is None:
            return form
        assert problem is not None  # None is allowed for the form only
        suspect, scores = 0, []
        try:
            values = _values(function, form, texts, problem)
            for suspect, value in enumerate(values):
                scores.append(_score(value, texts[suspect], right_from, after))
            return scores
        except _Broken as broken:
            what = f"{form.place}: {broken}"
        except Exception as error:  # a user's function may raise anything
            what = located(error, skip=__file__, place=form.place)
        return Fault(f"{named}: {what}; {describe_item(problem, texts[suspect])}")

    return work


def _values(
    function: Callable, form: Form, texts: Sequence[str], problem: Problem
) -> Sequence[Any]:
    """Returns for each text a value, or the exception of its own async call."""
    if not form.grouped:
        return [function(text, problem) for text in texts]
    if not form.batch:  # async with one text per call: run concurrently
        return _await_all(*(function(text, problem) for text in texts))
    values = function(list(texts), [problem] * len(texts))
    if inspect.isawaitable(values):
        (values,) = _await_all(values)
    if isinstance(values, Exception):
        raise values
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise _Broken(f"returned {_shown(values)}, not a list")
    if len(values) != len(texts):
        raise _Broken(f"returned a list of length {len(values)}, not {len(texts)}")
    return values


def _await_all(*calls: Awaitable[Any]) -> list[Any]:
    async def wait() -> list[Any]:
        return await asyncio.gather(*calls, return_exceptions=True)

    return _runner.run(wait())


# One event loop for all calls, because a user's HTTP client is bound to its loop.
_runner = asyncio.Runner()


def _form(function: Callable, named: str, module: str) -> Form:
    code = inspect.unwrap(function)
    code = getattr(code, "__code__", getattr(type(code).__call__, "__code__", None))
    place = f"{short_path(code.co_filename)}:{code.co_firstlineno}" if code else "?"
    waits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )
    signature = inspect.signature(function)
    batch = [*signature.parameters][:2] == ["completions", "problems"]
    try:
        signature.bind("completion", "problem")
        fits = batch or "completions" not in signature.parameters
    except TypeError:
        fits = False
    if not fits:
        takes = ", ".join(map(str, signature.parameters.values()))
        raise ValueError(
            f"{named}: {place}: has the arguments ({takes}); they must be (completion,"
            " problem) or (completions, problems)"
        )
    return Form(
        batch=batch,
        grouped=waits or batch,
        place=place,
        files=_files_beside(getattr(sys.modules[module], "__file__", None)),
    )


@functools.cache  # the files at the time of this process's first call
def _files_beside(file: str | None) -> Mapping[str, str]:
    """Returns SHA-256 by relative path of the imported files in the folder of `file`.

    Includes folders below, but neither this project's packages nor installed ones.
    Empty if `file` is None.
    """
    folder = os.path.dirname(file) + os.sep if file else "\0"
    others = [f"{_ROOT}{os.sep}{name}{os.sep}" for name in NAMES]
    if not folder.startswith(_LIBRARY):
        others.append(_LIBRARY)
    modules = {getattr(m, "__file__", None) or "" for m in [*sys.modules.values()]}
    return {
        path.removeprefix(folder): sha256(pathlib.Path(path))
        for path in sorted(modules)
        if path.startswith(folder)
        and not path.startswith(tuple(others))
        and "site-packages" not in path.removeprefix(folder)
        and os.path.isfile(path)
    }


def _score(value: Any, text: str, right_from: float, after: str | None) -> Score:
    if isinstance(value, Exception):  # of an async call
        raise value
    found = extract_answer(text, after=after)
    if not isinstance(value, Mapping):
        reward = _number(value, most=LARGEST)
        verdict = Verdict(reward >= right_from, found, "reward")
        return Score(reward=reward, verdict=verdict)
    unknown = [key for key in value if key not in _KEYS]
    if unknown or "reward" not in value:
        what = f"the unknown key {unknown[0]!r}" if unknown else "no key 'reward'"
        raise _Broken(f"returned a dict with {what}; the keys are {', '.join(_KEYS)}")
    parts = value.get("components") or {}
    if not isinstance(parts, Mapping):
        raise _Broken(f"returned components={_shown(parts)}, not a dict")
    components = {
        str(name): _number(part, f"components[{name!r}]=")
        for name, part in parts.items()
    }
    if value["reward"] is None:
        verdict = Verdict(None, found, "reward", "the function returned None")
        return Score(reward=math.nan, verdict=verdict, components=components)
    reward = _number(value["reward"], "reward=", most=LARGEST)
    right = reward >= right_from
    if value.get("correct") is not None:
        right = bool(_number(value["correct"], "correct="))
    verdict = Verdict(right, found, "reward")
    return Score(reward=reward, verdict=verdict, components=components)


def _number(value: Any, name: str = "", *, most: float = math.inf) -> float:
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except Exception:  # an object's own conversion may raise anything
        number = math.nan
    if not math.isfinite(number):
        raise _Broken(f"returned {name}{_shown(value)}, not a finite number")
    if abs(number) > most:
        raise _Broken(f"returned {name}{number:g}, whose magnitude exceeds {most:,}")
    return number


def describe_item(problem: Problem, completion: str) -> str:
    return f"problem {problem.id!r}, completion {_shown(completion)}"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # repr may fail, for example on an integer with too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 160 else f"{text[:80]} ... {text[-70:]}"
