"""A version read out of the trainer's own memory, by processes and real servers."""

import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from models.hf import DTYPES, device_tensors
from rollout.vllm.buffers import DeviceBuffers, _sums
from rollout.vllm.checksum import checksum, of_sums
from rollout.vllm.client import ServerRefused
from rollout.vllm.places import check_beacon
from tests.rollout.vllm import policies

ROOT = pathlib.Path(__file__).resolve().parents[3]
# A server's side, without vLLM: says what it read of each version that it is told.
READER = """
import hashlib, json, sys
from rollout.vllm.memory import Memories
from rollout.vllm.mirror import MemorySource, Mirror
from rollout.vllm.places import check_beacon
hello = json.loads(sys.stdin.readline())
check_beacon(hello["beacon"], hello["token"], key="")
shapes, dtype = hello["shapes"], hello["dtype"]
mirror = Mirror(shapes, dtype)
print("hello", flush=True)
for line in sys.stdin:
    told = json.loads(line)["tensors"]
    try:
        taken = mirror.take(told, MemorySource(told, Memories(), shapes, dtype))
    except (OSError, ValueError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        continue
    read = {n: hashlib.sha256(x).hexdigest() for n, x in mirror.tensors.items()}
    print(json.dumps({"bytes": taken.bytes, "read": read}), flush=True)
assert "jax" not in sys.modules and "torch" not in sys.modules
"""


class Reader:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            # Nobody's parent and nobody's child, as a server beside its trainer.
            start_new_session=True,
        )

    def ask(self, told):
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise AssertionError(self.process.stderr.read())
        return answer.strip()

    def take(self, told):
        return json.loads(self.ask(told))


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def policy(request, tmp_path_factory):
    folder = policies.make_folder(tmp_path_factory.mktemp("policy") / "model")
    return policies.Policy.load(folder, request.param)


@pytest.fixture
def buffers(policy):
    made = _buffers(policy)
    yield made
    made.close()


@pytest.fixture
def reader(buffers):
    policies.needs_memory()
    reader = Reader()
    with contextlib.closing(reader.process.stdin):
        assert reader.ask(buffers.hello()) == "hello"
        yield reader
    assert reader.process.wait(30) == 0, reader.process.stderr.read()


def _buffers(policy):
    kind = DTYPES[policy.dtype]
    return DeviceBuffers(
        lambda params: device_tensors(params, policy.model.config, kind),
        specs=policy.specs(),
        dtype=policy.dtype,
    )


def _digests(policy):
    return {
        name: hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()
        for name, x in policy.export(policy.params)
    }


def test_another_process_reads_every_version_bit_for_bit(policy, buffers, reader):
    for version in range(4):
        policy = policy.changed(version)
        told = buffers.stage(policy.params, f"run:{version}")
        found = reader.take(told)
        assert found["read"] == _digests(policy)
        sizes = [np.prod(s) * np.dtype(k).itemsize for s, k in policy.specs().values()]
        assert found["bytes"] == sum(sizes)
    # Told of what it holds already, as after a publish that broke off: nothing moves.
    assert reader.take(told)["bytes"] == 0


def test_a_tensor_stays_on_the_devices_that_have_it(policy, buffers):
    told = buffers.stage(policy.params, "run:0")
    parts = {name: entry["parts"] for name, entry in told["tensors"].items()}
    up = parts["model.layers.0.mlp.up_proj.weight"]
    assert len(up) == 8  # of a mesh of 4 x 2; one would have been gathered
    assert {tuple(np.ptp(part["at"], axis=1)) for part in up} == {(256, 32)}
    assert len(parts["model.norm.weight"]) <= 4  # replicas are told once


def test_what_is_trained_on_meanwhile_is_not_what_was_told(policy, buffers, reader):
    params = jax.tree.map(jnp.copy, policy.params)
    told = buffers.stage(params, "run:0")
    # An update writes to the parameters' own memory.
    step = jax.jit(lambda p: jax.tree.map(lambda x: x + 1, p), donate_argnums=0)
    jax.block_until_ready(step(params))
    assert reader.take(told)["read"] == _digests(policy)


def test_memory_that_is_not_as_announced_is_refused(policy, buffers, reader):
    told = buffers.stage(policy.params, "run:0")
    name = "model.layers.1.mlp.down_proj.weight"
    memory = told["tensors"][name]["parts"][3]["memory"]
    at = (ctypes.c_ubyte * memory["bytes"]).from_address(memory["start"])
    at[77] ^= 1
    assert reader.take(told)["error"].startswith(f"{name} is corrupted or stale")
    at[77] ^= 1
    assert reader.take(told)["read"] == _digests(policy)


def test_parts_that_leave_something_out_are_refused(policy, buffers, reader):
    told = buffers.stage(policy.params, "run:0")
    entry = told["tensors"]["model.layers.0.mlp.up_proj.weight"]
    whole = list(entry["parts"])
    entry["parts"] = whole[:-1]
    assert "its parts leave 8192 values out" in reader.take(told)["error"]
    for rows, why in ((512, "bytes are asked for of"), (8, "a part of")):
        entry["parts"] = [whole[0] | {"at": [[0, rows], [0, 32]]}, *whole[1:]]
        assert why in reader.take(told)["error"]


def test_a_trainer_that_is_gone_is_one_line(policy, buffers, reader):
    gone = subprocess.Popen(["sleep", "60"])
    told = buffers.stage(policy.params, "run:0")
    for entry in told["tensors"].values():
        for part in entry["parts"]:
            part["memory"]["pid"] = gone.pid
    # Another process under the same number has nothing there, or something else.
    assert "memory of process" in reader.take(told)["error"]
    gone.send_signal(signal.SIGKILL)
    gone.wait()
    answer = reader.take(told)
    assert answer["error"] == f"memory of process {gone.pid}: No such process"


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("shape", [(1,), (511,), (512,), (1025,), (700, 1024), (3, 7)])
def test_devices_sum_as_the_host_does(shape, kind):
    size = np.prod(shape) * np.dtype(kind).itemsize
    array = np.frombuffer(np.random.default_rng(0).bytes(size), kind).reshape(shape)
    assert of_sums(*map(np.asarray, _sums(jnp.asarray(array)))) == checksum(array)


@pytest.mark.vllm
def test_a_real_server_serves_what_it_reads_from_memory(tmp_path):
    policies.needs_memory()
    folder = policies.make_folder(tmp_path / "model")
    policy = policies.Policy.load(folder)
    sampler = policies.make_sampler(policy, tmp_path, transport=_buffers(policy))
    prompts = policies.prompts(4, low=40, high=200, seed=5)
    try:
        for version in range(4):
            policy = policy.changed(version)
            sampler.publish(policy.params, version)
            groups = sampler.sample(prompts, policies.draw(32, n=2), seed=version)
            assert policies.gaps(policy, prompts, groups).max() < 1e-4
            assert all((c.versions == version).all() for g in groups for c in g)
        # A refused version leaves the last one in service.
        stage = sampler._transport.stage

        def damaged(*of):
            told = stage(*of)
            told["tensors"]["model.norm.weight"]["parts"][0]["memory"]["bytes"] -= 4
            return told

        sampler._transport.stage = damaged
        with pytest.raises(ServerRefused, match=r"model.norm.weight|are asked for of"):
            sampler.publish(policy.changed(9).params, 9)
        sampler._transport.stage = stage
        # Killed, it reads the current version again, from where that still lies.
        sampler.publish(policy.params, 10)
        os.kill(sampler._fleet.members[0].process.pid, signal.SIGKILL)
        groups = sampler.sample(prompts, policies.draw(32, n=2), seed=11)
        assert policies.gaps(policy, prompts, groups).max() < 1e-4
        assert sampler.metrics()["sampler/restarts"] == 1
    finally:
        sampler.close()


# CUDA's driver as far as it is called, by its own signatures, over files in place of
# GPUs: an allocation is a file, which a handle names. Device 2 has all, 0 reads it.
DRIVER = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef uint64_t CUdeviceptr;
static const size_t MOST = 1 << 29;
static CUdeviceptr owned[8];
static size_t sizes[8];
static int count = 0, opened = 0;
static __thread intptr_t current = 0;
#define NEEDS_CONTEXT if (!current) return 201
static CUdeviceptr map(const char *path, size_t bytes) {
  int file = open(path, O_RDWR | O_CREAT, 0600);
  if (bytes) ftruncate(file, bytes);
  return (CUdeviceptr)mmap(0, MOST, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}
int cuInit(unsigned flags) { return flags; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)(intptr_t)device;
  return device != 42 && device != 40;
}
int cuCtxSetCurrent(void *context) { current = (intptr_t)context; return 0; }
int cuCtxSynchronize(void) { NEEDS_CONTEXT; return 0; }
int cuGetErrorString(int code, const char **words) {
  *words = code == 2 ? "out of memory" : code == 211 ? "not mapped" : "invalid";
  return 0;
}
int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
  NEEDS_CONTEXT;
  if (bytes > MOST) return 2;
  char name[64];
  sprintf(name, "pool%d", count);
  sizes[count] = bytes;
  *at = owned[count++] = map(name, bytes);
  return 0;
}
int cuMemFree_v2(CUdeviceptr at) { NEEDS_CONTEXT; return munmap((void *)at, MOST); }
int cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  NEEDS_CONTEXT;
  memcpy((void *)to, (void *)from, bytes);
  return 0;
}
int cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr base) {
  NEEDS_CONTEXT;
  for (int i = 0; i < count; i++)
    if (owned[i] == base) return sprintf(handle->reserved, "pool%d", i) < 0;
  return 1;
}
int cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags) {
  NEEDS_CONTEXT;
  if (flags != 1 || opened > 2 || access(handle.reserved, R_OK)) return 211;
  opened++; *at = map(handle.reserved, 0);
  return 0;
}
int cuIpcCloseMemHandle(CUdeviceptr at) {
  NEEDS_CONTEXT;
  opened--;
  return munmap((void *)at, MOST);
}
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  NEEDS_CONTEXT;
  memcpy(to, (void *)from, bytes);
  return 0;
}
"""
OWNER = """
import json, sys
import numpy as np
from rollout.vllm.memory import GpuShare
share = GpuShare(2)
for version in range(2):
    share.renew()
    pieces = [np.full(n, 10 * version + i, np.uint8)
              for i, n in enumerate((1000, 1 << 28, 700, 24))]
    told = [share.copy(x.ctypes.data, x.nbytes) for x in pieces]
print(json.dumps(told))
try:
    share.copy(0, 1 << 30)
except OSError as error:
    print(error)
sys.stdin.read()
share.close()
"""
GUEST = """
import contextlib, json, sys, threading
import numpy as np
from rollout.vllm.memory import Memories
told = json.loads(sys.argv[1])
def read():
    with contextlib.closing(Memories(0)) as memories:
        for i, part in enumerate(told):
            into = np.zeros(part["bytes"] - 7, np.uint8)
            assert memories.find(part).read(7, into) == part["bytes"]
            assert (into == 10 + i).all()
        try:
            memories.find(part).read(8, into)
        except ValueError as error:
            print(error)
for _ in range(2):
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
try:
    Memories().find(told[0] | {"handle": "00" * 64})
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_memory_is_told_of_and_read_by_the_signatures_of_cuda(tmp_path):
    (tmp_path / "driver.c").write_text(DRIVER)
    library = ["-shared", "-fPIC", "-w", "-o", "libcuda.so.1", "driver.c"]
    subprocess.run(["cc", *library], cwd=tmp_path, check=True)

    def start(*command):
        return subprocess.Popen(
            [sys.executable, "-c", *command],
            env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": ROOT},
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    owner = start(OWNER)
    told = json.loads(owner.stdout.readline())
    # The second fills a chunk of its own; the third begins one more.
    assert [part["start"] for part in told] == [0, 0, 0, 1024]
    handles = [bytes.fromhex(part["handle"]).rstrip(b"\0") for part in told]
    assert handles == [b"pool0", b"pool1", b"pool2", b"pool2"]
    assert owner.stdout.readline() == "CUDA's cuMemAlloc_v2: out of memory (2)\n"
    answers, _ = start(GUEST, json.dumps(told)).communicate(timeout=60)
    assert answers.splitlines() == [
        "25 bytes are asked for of 24",
        "25 bytes are asked for of 24",
        "CUDA's cuIpcOpenMemHandle_v2: not mapped (211)",
    ]
    owner.communicate(timeout=60)
    assert owner.returncode == 0


def test_memory_that_cannot_be_read_is_one_line():
    gone = subprocess.Popen(["true"])
    gone.wait()
    told = {"pid": gone.pid, "start": 4096, "bytes": 4}
    said = (
        rf"^rollout.vllm.weights=memory: .* \(memory of process {gone.pid}: No such"
        r" process\): take files$"
    )
    with pytest.raises(ValueError, match=said):
        check_beacon(told, "abcd", key="")
