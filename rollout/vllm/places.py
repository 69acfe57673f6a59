"""A file of the trainer's, read by byte range: on a path that both see, or at a URL.

What a server is told of a version names its files, and `find` reads either kind. Who
answers at a URL is `rollout.vllm.file_server`. Standard library and NumPy only: it is
imported inside vLLM's workers.
"""

import contextlib
import http.client
import os
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from rollout.vllm.memory import Memories

_BLOCK = 1 << 20  # bytes, of which a broken connection loses one block at most
_SILENCE = 10.0  # seconds without a byte, after which a connection counts as broken
_PATIENCE = 120.0  # seconds of broken connections without a byte in between
_BETWEEN = 0.2  # seconds


class Place(Protocol):
    def read(self, start: int, into: np.ndarray) -> int:
        """Fills `into`, uint8, with the bytes from `start` on.

        Returns:
          How many bytes the file has.

        Raises:
          OSError: it cannot be read, or is not reached.
          ValueError: it has fewer bytes, or whoever has it says no; in his words.
        """
        ...


def find(
    where: str,
    *,
    key: str,
    patience: float = _PATIENCE,
    wanted: Callable[[], bool] = lambda: True,
) -> Place:
    """What is at a path, or at a URL.

    Args:
      key: asked for at a URL.
      patience: seconds for which connections may break without a byte in between.
      wanted: looked at before a broken connection is made anew.

    Raises:
      ValueError: there is no key for a URL.
    """
    if not where.startswith("http://"):
        return _LocalFile(where)
    if not key:
        raise ValueError(f"{where} asks for a key: start this server with VLLM_API_KEY")
    return _RemoteFile(where, key, patience, wanted)


def check_beacon(
    where: str | dict[str, Any], token: str, *, key: str, device: int = 0
) -> None:
    """Whether this process reads what the trainer has written, or has in its memory.

    Args:
      where: a path, a URL, or what is told of memory (`rollout.vllm.memory`).
      token: what is there.
      device: GPU of this process, to reach the memory of others.

    Raises:
      ValueError: it does not, and why.
    """
    found = np.zeros(len(token), np.uint8)
    in_memory = isinstance(where, dict)
    try:
        if in_memory:
            with contextlib.closing(Memories(device)) as memories:
                memories.find(where).read(0, found)
        else:
            find(where, key=key, patience=0).read(0, found)
        if found.tobytes().decode(errors="replace") != token:
            raise ValueError("something else is there")
    except (OSError, ValueError) as error:
        if in_memory:
            raise ValueError(
                "rollout.vllm.weights=memory: the server cannot read the trainer's"
                f" memory ({error}): take files"
            ) from None
        raise ValueError(
            f"the server does not see the trainer's weights ({error}): give both a"
            " folder that they share, or a rollout.vllm.weight_url that is reached here"
        ) from None


class _LocalFile:
    def __init__(self, path: str):
        self._path = path

    def read(self, start: int, into: np.ndarray) -> int:
        with open(self._path, "rb") as file:
            file.seek(start)
            found = file.readinto(into.data)
            size = os.fstat(file.fileno()).st_size
        if found != into.size:
            raise ValueError(f"{self._path} ends after {start + found} bytes")
        return size


class _RemoteFile:
    """Goes on where a connection broke, as long as somebody wants the rest."""

    def __init__(self, url: str, key: str, patience: float, wanted: Callable[[], bool]):
        parts = urllib.parse.urlsplit(url)
        self._url, self._path = url, parts.path
        self._headers = {"Authorization": f"Bearer {key}"}
        self._patience, self._wanted = patience, wanted
        self._connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=_SILENCE
        )

    def read(self, start: int, into: np.ndarray) -> int:
        done, heard = 0, time.monotonic()
        while True:
            try:
                answer, size = self._ask(start + done, start + into.size)
                while done < into.size:
                    got = answer.readinto(into.data[done : done + _BLOCK])
                    if not got:
                        raise ConnectionError(f"ends after {start + done} bytes")
                    done, heard = done + got, time.monotonic()
                return size
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                waited = time.monotonic() - heard
                if waited >= self._patience or not self._wanted():
                    reason = f"{type(error).__name__} {error}".strip()
                    raise OSError(f"{self._url}: no answer ({reason})") from None
                time.sleep(_BETWEEN)

    def _ask(self, start: int, stop: int) -> tuple[Any, int]:
        asked = f"{start}-{stop - 1}"
        headers = self._headers | {"Range": f"bytes={asked}"}
        self._connection.request("GET", self._path, headers=headers)
        answer = self._connection.getresponse()
        told, _, size = answer.getheader("Content-Range", "").partition("/")
        if answer.status == 206 and told == f"bytes {asked}":
            return answer, int(size)
        words = answer.read(200).decode(errors="replace")
        self._connection.close()
        raise ValueError(f"{self._url}: {answer.status} {words}")
