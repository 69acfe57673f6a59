"""A server's own copy of the policy in host memory, brought from version to version.

A version is a manifest and its bytes. The manifest says of each tensor what its digest
is, and where in the delta lies what makes it out of a base, if anything does:

    {"digest": d}                                          whole
    {"digest": d, "base": b, "start": i, "stop": j}        a delta; of nothing, often

Whoever holds the base applies the delta; whoever does not, or finds that the result is
not as announced, takes the tensor whole. So a delta that is damaged, missing or of
another version costs bytes and no more, and a tensor is never what was not announced.
Needs NumPy only.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from rollout.vllm import delta
from rollout.vllm.checksum import checksum, joined
from rollout.vllm.memory import Memories
from rollout.vllm.places import Place

ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2}


class Source(Protocol):
    """Where a version's bytes come from; both calls raise OSError or ValueError."""

    def delta(self, start: int, stop: int) -> np.ndarray:
        """These bytes of the version's delta, uint8."""
        ...

    def whole(self, name: str, into: np.ndarray) -> int:
        """Fills `into`, uint8, with a tensor; the digest of what it now holds."""
        ...


@dataclasses.dataclass(slots=True)
class Taken:
    """What a version cost.

    Attributes:
      bytes: read of tensors and deltas.
      healed: tensors whose base was there and whose delta would not do, and why.
    """

    bytes: int = 0
    healed: dict[str, str] = dataclasses.field(default_factory=dict)


class Mirror:
    """The tensors of one model in one dtype, each with the digest that it has."""

    def __init__(self, shapes: Mapping[str, list[int]], dtype: str):
        """Holds nothing yet.

        Args:
          shapes: by Hugging Face name.
          dtype: in safetensors' words ("F32", "BF16", "F16").
        """
        kind = np.dtype(f"u{ITEM_BYTES[dtype]}")
        self.tensors = {name: np.empty(s, kind) for name, s in shapes.items()}
        self._held: dict[str, int | None] = dict.fromkeys(shapes)

    def take(self, manifest: Mapping[str, Any], source: Source) -> Taken:
        """Makes every tensor what the manifest says.

        Raises:
          ValueError: the manifest is of another model, or a whole tensor is not as
            announced. Tensors may be of this version or the last.
          OSError: a file cannot be read or is not reached.
        """
        if missing := sorted(self.tensors.keys() - manifest.keys()):
            raise ValueError(f"{len(missing)} tensors missing, first {missing[0]}")
        if unknown := sorted(manifest.keys() - self.tensors.keys()):
            raise ValueError(f"{len(unknown)} unknown tensors, first {unknown[0]}")
        taken = Taken()
        for name, entry in manifest.items():
            if self._held[name] is not None and self._held[name] == entry.get("base"):
                try:
                    self._take_delta(name, entry, source, taken)
                    continue
                except (FileNotFoundError, ValueError) as error:
                    taken.healed[name] = str(error)
            if self._held[name] != entry["digest"]:
                self._take_whole(name, entry, source, taken)
        return taken

    def _take_delta(self, name, entry, source, taken) -> None:
        data = source.delta(entry["start"], entry["stop"])
        taken.bytes += data.size
        self._held[name] = None
        delta.apply(self.tensors[name], data)
        self._judge(name, checksum(self.tensors[name]), entry["digest"])

    def _take_whole(self, name, entry, source, taken) -> None:
        into = self.tensors[name].reshape(-1).view(np.uint8)
        self._held[name] = None
        found = source.whole(name, into)
        taken.bytes += into.size
        self._judge(name, found, entry["digest"])

    def _judge(self, name: str, found: int, announced: int) -> None:
        if found != announced:
            raise ValueError(
                f"{name} is corrupted or stale: digest {found:016x}, announced"
                f" {announced:016x}"
            )
        self._held[name] = found


class FileSource:
    """A version as two files: all tensors in safetensors' format, and the delta."""

    def __init__(self, whole: Place, delta: Place, shapes: Mapping, dtype: str):
        """Reads nothing yet: the file of whole tensors is mostly not needed."""
        self._whole, self._delta = whole, delta
        self._shapes, self._dtype = shapes, dtype
        self._starts: dict[str, int] | None = None

    def delta(self, start: int, stop: int) -> np.ndarray:
        data = np.empty(stop - start, np.uint8)
        self._delta.read(start, data)
        return data

    def whole(self, name: str, into: np.ndarray) -> int:
        if self._starts is None:
            self._starts = self._read_header()
        self._whole.read(self._starts[name], into)
        return checksum(into)

    def _read_header(self) -> dict[str, int]:
        """Where each tensor begins, once every one is found to be as expected."""
        head = np.empty(8, np.uint8)
        size = self._whole.read(0, head)
        length = int.from_bytes(head.tobytes(), "little")
        if not 0 < length <= size - 8:
            raise ValueError(
                f"unreadable weights file: {size} bytes, and a header of {length}"
            )
        text = np.empty(length, np.uint8)
        self._whole.read(8, text)
        try:
            header = json.loads(text.tobytes())
            header.pop("__metadata__", None)
            ends = max(entry["data_offsets"][1] for entry in header.values())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"unreadable weights file: {error}") from None
        if 8 + length + ends != size:
            raise ValueError(
                f"unreadable weights file: {size} bytes, its header says"
                f" {8 + length + ends}"
            )
        for name, shape in self._shapes.items():
            if name not in header:
                raise ValueError(f"the weights file lacks {name}")
            found = header[name]
            if found["dtype"] != self._dtype:
                raise ValueError(
                    f"{name} is {found['dtype']}, serving dtype is {self._dtype}"
                )
            if list(found["shape"]) != list(shape):
                raise ValueError(f"{name} has shape {found['shape']}, expected {shape}")
        return {name: 8 + length + e["data_offsets"][0] for name, e in header.items()}


class MemorySource:
    """A version where the trainer has it: tensors in parts, each in a device's memory.

    An entry of the manifest has, instead of what is said of deltas, the parts that make
    up the tensor; its digest is of theirs:

        {"digest": d, "parts": [{"at": [[i, j], ...], "memory": told}, ...]}
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        memories: Memories,
        shapes: Mapping,
        dtype: str,
    ):
        self._manifest, self._memories, self._shapes = manifest, memories, shapes
        self._kind = np.dtype(f"u{ITEM_BYTES[dtype]}")

    def delta(self, start: int, stop: int) -> np.ndarray:
        raise ValueError("memory holds no delta")

    def whole(self, name: str, into: np.ndarray) -> int:
        tensor = into.view(self._kind).reshape(self._shapes[name])
        digests, left = [], tensor.size
        for part in self._manifest[name]["parts"]:
            place = tensor[tuple(slice(*range_) for range_ in part["at"])]
            straight = place.flags.c_contiguous
            read = place if straight else np.empty(place.shape, place.dtype)
            owner = self._memories.find(part["memory"])
            size = owner.read(0, read.reshape(-1).view(np.uint8))
            if size != read.nbytes:
                raise ValueError(f"{name}: a part of {size} bytes for {read.nbytes}")
            digests.append(checksum(read))
            if not straight:
                place[...] = read
            left -= place.size
        if left:
            raise ValueError(f"{name}: its parts leave {left} values out")
        return joined(digests)
