"""Describes errors in one line, including those of a user's functions."""

import contextlib
import os
import sysconfig
import traceback
from collections.abc import Iterator


def one_line(error: BaseException) -> str:
    """Returns an error's message as one line; its `repr` if it has no message."""
    return " ".join(str(error).split()) or repr(error)


@contextlib.contextmanager
def user_code(where: str) -> Iterator[None]:
    """Replaces an error of a user's function by a ValueError with `where` and the line.

    The message of a ValueError is for users already, so it has no line.
    """
    try:
        yield
    except Exception as error:  # a user's function may raise anything
        reason = " ".join(str(error).split())
        if not isinstance(error, ValueError):
            place = error_place(error, skip=__file__)
            kind = type(error).__name__
            reason = ": ".join(filter(None, (place, kind, reason)))
        raise ValueError(f"{where}: {reason}") from error


def error_place(error: BaseException, *, skip: str) -> str:
    """Returns "FILE:LINE" of the innermost frame outside libraries and file `skip`."""
    folders = map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))
    skipped = (skip, "<", *folders)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(skipped):
            return f"{short_path(frame.filename)}:{frame.lineno}"
    return ""


def short_path(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
