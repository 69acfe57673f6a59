"""How a policy's weights reach the servers: written once, announced to each.

`WeightTransport` is what the sampler knows: something that stages a version and says
what to tell a server so that it takes it. `PublishedFiles` writes two files in shared
memory, or in a folder that remote servers share, one of all tensors and one of what
changed; see `rollout.vllm.mirror` for what a server makes of them. `ServedFiles` has
the same files, and tells of each the URL at which servers without that folder ask for
it. `rollout.vllm.buffers` writes nothing, and tells where the devices have it.
"""

import os
import pathlib
import secrets
import shutil
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from models.safetensors_io import Specs, as_announced, map_tensors
from rollout.vllm import leash
from rollout.vllm.checksum import checksum
from rollout.vllm.delta import apply, encode
from rollout.vllm.file_server import FileServer

Export = Callable[[Any], Iterable[tuple[str, np.ndarray]]]
_OVERWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
WIRE_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


class WeightTransport(Protocol):
    """Stages versions of the policy."""

    def hello(self) -> dict[str, Any]:
        """What a server is told once, before its first update."""
        ...

    def stage(self, params: Any, version: str) -> dict[str, Any]:
        """Makes `params` ready as `version`; returns what a server is told to take it.

        It may be told so again, after a restart, until the next version is staged.
        """
        ...

    def close(self) -> None: ...


def greeting(
    specs: Specs, dtype: str, beacon: str | dict[str, Any], token: str
) -> dict[str, Any]:
    """What `hello` tells: the tensors to come, and where to find `token` by now."""
    return {
        "shapes": {name: list(shape) for name, (shape, _) in specs.items()},
        "dtype": dtype,
        "beacon": beacon,
        "token": token,
    }


class PublishedFiles:
    """The current version whole, and what made it out of the one before."""

    def __init__(
        self, folder: pathlib.Path, *, export: Export, specs: Specs, dtype: str
    ):
        """Checks that a version fits and that the folder can be written.

        Args:
          folder: of this run alone. Made here, and gone with this process, however
            that ends: what it holds may be 15 GB of shared memory.
          export: `(name, host array)` of each tensor of a parameter tree, by Hugging
            Face name, one at a time.
          specs: `(shape, dtype)` of what `export` yields.
          dtype: the serving dtype, which all of `specs` have.

        Raises:
          OSError: there is no room for a version, or the folder cannot be made.
        """
        self._folder = folder
        self._export = export
        self._specs = specs
        self._dtype = WIRE_DTYPES[dtype]
        self._file = folder / "policy.safetensors"
        self._delta = folder / "policy.delta"
        self._digests: dict[str, int] = {}
        self._beacon = folder / "beacon"
        self._token = secrets.token_hex(16)
        self.bytes = sum(
            int(np.prod(shape)) * np.dtype(kind).itemsize
            for shape, kind in specs.values()
        )
        self._check_space(self._file)
        folder.mkdir(mode=0o700)
        self._leash, self._lifeline = leash.start(
            ["sleep", "infinity"], remove=str(folder.absolute())
        )
        self._beacon.write_text(self._token)

    def hello(self) -> dict[str, Any]:
        return greeting(self._specs, self._dtype, str(self._beacon), self._token)

    def stage(self, params: Any, version: str) -> dict[str, Any]:
        """Writes both files tensor by tensor. No server may be reading the last ones.

        The file of all tensors is changed where it lies, by the very deltas that the
        servers apply to theirs.

        Raises:
          OSError: the folder is full. Nothing half-written stays there.
        """
        # The version that this one replaces gives its place to it: two of a 7B model
        # are 30 GB of shared memory.
        part = self._file.with_suffix(".part")
        if self._file.exists():
            os.replace(self._file, part)
        bases, self._digests = self._digests, {}
        entries: dict[str, dict[str, int]] = {}
        try:
            room = self._check_space(part)
            mapped, held = map_tensors(
                part, self._specs, metadata={"format": "pt"}, mode=0o600
            )
            exported = as_announced(part, self._specs, self._export(params))
            with open(os.open(self._delta, _OVERWRITE, 0o600), "wb") as file:
                for name, array in exported:
                    array = np.ascontiguousarray(array)
                    entries[name] = {"digest": checksum(array)}
                    data = encode(held[name], array)
                    if data is None:
                        held[name][...] = array
                        continue
                    apply(held[name], data)
                    start = file.tell()
                    if name in bases and start + data.size <= room:
                        file.write(data.data)
                        entries[name] |= {
                            "base": bases[name],
                            "start": start,
                            "stop": start + data.size,
                        }
            mapped.flush()
            os.replace(part, self._file)
        except BaseException:
            part.unlink(missing_ok=True)
            self._delta.unlink(missing_ok=True)
            raise
        self._digests = {name: entry["digest"] for name, entry in entries.items()}
        return {
            "version": version,
            "whole": str(self._file),
            "delta": str(self._delta),
            "tensors": entries,
        }

    def _check_space(self, reused: pathlib.Path) -> int:
        """How many bytes are free beside a version that takes the place of `reused`."""
        free = shutil.disk_usage(self._folder.parent).free
        held = reused.stat().st_size if reused.exists() else 0
        if free + held < self.bytes:
            raise OSError(
                f"{self._folder} has {free / 1e9:.2f} GB free; one version of the"
                f" weights takes {self.bytes / 1e9:.2f} GB (set"
                " rollout.vllm.weight_dir, or enlarge the shared memory)"
            )
        return free + held - self.bytes

    def close(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
            self._leash.wait()


class ServedFiles:
    """Published files that servers elsewhere ask this process for."""

    def __init__(self, files: PublishedFiles, *, url: str, key: str):
        """Listens; nothing is on offer yet.

        Args:
          files: what is served. They are closed with this.
          url: http://host:port, an address of this machine that the servers reach.
          key: that they were started with too.

        Raises:
          ValueError: there is no key, or one cannot listen there.
        """
        self._files = files
        self._urls: dict[str, str] = {}
        try:
            parts = urllib.parse.urlsplit(url)
            anywhere = parts.hostname in (None, "0.0.0.0", "::")
            if parts.scheme != "http" or anywhere or parts.port is None:
                raise ValueError(
                    "expected http://host:port, an address that the servers reach"
                )
            if not key:
                raise ValueError(
                    "the weights would be open to the network; set VLLM_API_KEY, here"
                    " and for the servers"
                )
            self._server = FileServer(parts.hostname, parts.port, key)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ValueError(
                f"config.rollout.vllm.weight_url={url!r}: {reason}"
            ) from None

    def hello(self) -> dict[str, Any]:
        return self._offered(self._files.hello(), "beacon")

    def stage(self, params: Any, version: str) -> dict[str, Any]:
        """See `PublishedFiles.stage`. Who still asks for the last one is refused."""
        for place in ("whole", "delta"):
            if place in self._urls:
                self._server.withdraw(self._urls.pop(place))
        return self._offered(self._files.stage(params, version), "whole", "delta")

    def _offered(self, told: dict[str, Any], *places: str) -> dict[str, Any]:
        """What is told, with a URL for each path."""
        for place in places:
            if place not in self._urls:
                self._urls[place] = self._server.offer(told[place])
        return told | {place: self._urls[place] for place in places}

    def close(self) -> None:
        self._server.close()
        self._files.close()
