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
        is_for_users = isinstance(error, ValueError)
        reason = one_line(error) if is_for_users else located(error, skip=__file__)
        raise ValueError(f"{where}: {reason}") from error


def located(error: BaseException, *, skip: str, place: str = "") -> str:
    """Returns "FILE:LINE: KIND: MESSAGE" of an error.

    The line is that of the innermost frame outside libraries and the file `skip`.
    Without such a frame, it is replaced by `place`.
    """
    folders = map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))
    skipped = (skip, "<", *folders)
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(skipped):
            place = f"{short_path(frame.filename)}:{frame.lineno}"
    message = " ".join(str(error).split())
    return ": ".join(filter(None, (place, type(error).__name__, message)))


def short_path(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
