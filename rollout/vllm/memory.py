"""Memory of another process: of this host's, or of a GPU of this node.

Whoever has it shares it (`share_host`, `GpuShare`) and tells where it is; whoever is
told reads it (`Memories`). Host memory is read by the kernel on a reader's behalf, a
GPU's through CUDA's handles between processes; either way the owner does nothing
meanwhile, and only has to keep it as it is. Standard library and NumPy only: it is
imported inside vLLM's workers.
"""

import ctypes
import functools
import os
from typing import Any

import numpy as np

_MOST = 1 << 30  # bytes of one call; the kernel cuts off at 2 GiB
_CHUNK = 1 << 28  # bytes that are asked of CUDA at a time
_APART = 512  # bytes to which pieces of a chunk are rounded up
_LAZY_PEER_ACCESS = 1
_HANDLE_BYTES = 64


def share_host(address: int, nbytes: int) -> dict[str, Any]:
    """What a reader is told of a range of this process's memory."""
    return {"pid": os.getpid(), "start": address, "bytes": nbytes}


class GpuShare:
    """Copies on one GPU that other processes can read.

    Of memory that is CUDA's own: what JAX allocates has no handle for other processes
    (XLA maps it by `cuMemCreate`). Chunks are kept from one set of copies to the next.
    """

    def __init__(self, device: int):
        """
        Args:
          device: GPU by this process's own count.
        """
        self._device = device
        self._chunks: list[tuple[int, int, str]] = []  # address, bytes, handle
        self._chunk, self._used = 0, 0

    def renew(self) -> None:
        """The next copies take the place of those that were made."""
        self._chunk, self._used = 0, 0

    def copy(self, address: int, nbytes: int) -> dict[str, Any]:
        """Copies a range of this GPU's memory; what a reader is told of the copy.

        Raises:
          OSError: CUDA has no room or does not share it, in its words.
        """
        cuda = _Cuda()
        cuda.use(self._device)
        while self._chunk < len(self._chunks):
            if self._used + nbytes <= self._chunks[self._chunk][1]:
                break
            self._chunk, self._used = self._chunk + 1, 0
        else:
            self._allocate(max(nbytes, _CHUNK))
        base, _, handle = self._chunks[self._chunk]
        start, self._used = self._used, self._used + -(-nbytes // _APART) * _APART
        cuda(
            "cuMemcpyDtoD_v2",
            ctypes.c_uint64(base + start),
            ctypes.c_uint64(address),
            ctypes.c_size_t(nbytes),
        )
        cuda("cuCtxSynchronize")
        return {"handle": handle, "start": start, "bytes": nbytes}

    def _allocate(self, nbytes: int) -> None:
        cuda, base, handle = _Cuda(), ctypes.c_uint64(), _Handle()
        cuda("cuMemAlloc_v2", ctypes.byref(base), ctypes.c_size_t(nbytes))
        self._chunks.append((base.value, nbytes, ""))
        cuda("cuIpcGetMemHandle", ctypes.byref(handle), base)
        self._chunks[-1] = (base.value, nbytes, bytes(handle.data).hex())

    def close(self) -> None:
        if self._chunks:
            _Cuda().use(self._device)
        while self._chunks:
            _Cuda()("cuMemFree_v2", ctypes.c_uint64(self._chunks.pop()[0]))


class HostMemory:
    """Of a process of this host and this user."""

    def __init__(self, told: dict[str, Any]):
        self._pid, self._start = told["pid"], told["start"]
        self._bytes = told["bytes"]

    def read(self, start: int, into: np.ndarray) -> int:
        """See `rollout.vllm.places.Place.read`."""
        _check(start, into, self._bytes)
        done = 0
        while done < into.size:
            most = min(into.size - done, _MOST)
            ours = _Range(into.ctypes.data + done, most)
            theirs = _Range(self._start + start + done, most)
            got = _libc().process_vm_readv(
                *(self._pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
            )
            if got <= 0:
                why = os.strerror(ctypes.get_errno()) if got else "nothing is there"
                raise OSError(f"memory of process {self._pid}: {why}")
            done += got
        return self._bytes


class Memories:
    """What other processes have told of. Allocations of GPUs stay open until `close`.

    One process opens an allocation once at a time. It stays taken while it is open,
    though its owner be gone. To be used by one thread.
    """

    def __init__(self, device: int = 0):
        """
        Args:
          device: the GPU, by this process's own count, that reaches others' memory.
        """
        self._device = device
        self._opened: dict[str, int] = {}

    def find(self, told: dict[str, Any]) -> "HostMemory | _GpuMemory":
        """What was told of.

        Raises:
          OSError: CUDA does not reach it, in its words.
        """
        handle = told.get("handle")
        if handle is None:
            return HostMemory(told)
        cuda = _Cuda()
        cuda.use(self._device)
        if handle not in self._opened:
            address = ctypes.c_uint64()
            cuda(
                "cuIpcOpenMemHandle_v2",
                ctypes.byref(address),
                _Handle.from_buffer_copy(bytes.fromhex(handle)),
                ctypes.c_uint(_LAZY_PEER_ACCESS),
            )
            self._opened[handle] = address.value
        return _GpuMemory(self._opened[handle] + told["start"], told["bytes"])

    def close(self) -> None:
        for address in self._opened.values():
            _Cuda()("cuIpcCloseMemHandle", ctypes.c_uint64(address))
        self._opened.clear()


class _GpuMemory:
    def __init__(self, address: int, nbytes: int):
        self._address, self._bytes = address, nbytes

    def read(self, start: int, into: np.ndarray) -> int:
        """See `rollout.vllm.places.Place.read`."""
        _check(start, into, self._bytes)
        _Cuda()(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(into.ctypes.data),
            ctypes.c_uint64(self._address + start),
            ctypes.c_size_t(into.size),
        )
        return self._bytes


def _check(start: int, into: np.ndarray, nbytes: int) -> None:
    if start + into.size > nbytes:
        raise ValueError(f"{start + into.size} bytes are asked for of {nbytes}")


class _Range(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class _Handle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_ubyte * _HANDLE_BYTES)]


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    return libc


@functools.cache
class _Cuda:
    """CUDA's driver, of which a failed call raises OSError in its own words."""

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self("cuInit", 0)

    def __call__(self, function: str, *arguments: Any) -> None:
        code = getattr(self._driver, function)(*arguments)
        if code:
            words = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(words))
            told = (words.value or b"unknown").decode()
            raise OSError(f"CUDA's {function}: {told} ({code})")

    def use(self, device: int) -> None:
        """Makes the context that JAX and torch have on a GPU this thread's."""
        if device not in self._contexts:
            found, context = ctypes.c_int(), ctypes.c_void_p()
            self("cuDeviceGet", ctypes.byref(found), device)
            self("cuDevicePrimaryCtxRetain", ctypes.byref(context), found)
            self._contexts[device] = context
        self("cuCtxSetCurrent", self._contexts[device])
