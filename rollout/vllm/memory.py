"""A range of another process's memory: of this host's, or of a GPU of this node.

Whoever has it tells where it is (`tell`), and whoever is told reads it as any other
place (`rollout.vllm.places`). Host memory is read by the kernel on a reader's behalf,
GPU memory through CUDA's handles between processes; either way the owner does nothing
meanwhile, and only has to keep it as it is. Standard library and NumPy only: it is
imported inside vLLM's workers.
"""

import ctypes
import functools
import os
from typing import Any, Literal

import numpy as np

_MOST = 1 << 30  # bytes of one call; the kernel cuts off at 2 GiB
_LAZY_PEER_ACCESS = 1
_HANDLE_BYTES = 64


def tell(
    platform: Literal["cpu", "cuda"], address: int, nbytes: int, *, device: int = 0
) -> dict[str, Any]:
    """What a reader is told of a range of this process's memory.

    Args:
      address: of its first byte, on the device.
      device: GPU by this process's own count.

    Raises:
      OSError: CUDA does not share this memory, in its words.
    """
    if platform == "cpu":
        return {"pid": os.getpid(), "start": address, "bytes": nbytes}
    cuda = _Cuda()
    cuda.use(device)
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    cuda(
        "cuMemGetAddressRange_v2",
        ctypes.byref(base),
        ctypes.byref(size),
        ctypes.c_uint64(address),
    )
    handle = _Handle()
    cuda("cuIpcGetMemHandle", ctypes.byref(handle), base)
    return {
        "handle": bytes(handle.data).hex(),
        "start": address - base.value,
        "bytes": nbytes,
    }


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

    One process opens an allocation once at a time, and an owner has few, each with many
    tensors. It stays taken while it is open, though its owner be gone. To be used where
    this process's own GPU is current.
    """

    def __init__(self):
        self._opened: dict[str, int] = {}

    def find(self, told: dict[str, Any]) -> "HostMemory | _GpuMemory":
        """What was told of by `tell`.

        Raises:
          OSError: CUDA does not reach it, in its words.
        """
        handle = told.get("handle")
        if handle is None:
            return HostMemory(told)
        if handle not in self._opened:
            address = ctypes.c_uint64()
            _Cuda()(
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
        self("cuInit", 0)

    def __call__(self, function: str, *arguments: Any) -> None:
        code = getattr(self._driver, function)(*arguments)
        if code:
            words = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(words))
            told = (words.value or b"unknown").decode()
            raise OSError(f"CUDA's {function}: {told} ({code})")

    def use(self, device: int) -> None:
        """Makes the context that JAX has on a GPU this thread's."""
        found, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(found), device)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), found)
        self("cuCtxSetCurrent", context)
