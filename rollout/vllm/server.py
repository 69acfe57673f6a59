"""One vLLM server process: its command, its start, its end.

    python -m rollout.vllm.server --model DIR --port 8000

runs a server for trainers on other hosts, from vLLM's own environment: like all that
vLLM's side imports, this file needs no JAX.
"""

import argparse
import collections
import contextlib
import dataclasses
import logging
import os
import pathlib
import re
import secrets
import socket
import subprocess
import sys
import time

from rollout.types import SamplerError
from rollout.vllm import leash
from rollout.vllm.client import ServerGone, VllmClient

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# The system's, the accelerators' and vLLM's own; of all others nothing is handed on.
_NEEDS = (
    *("PATH", "HOME", "USER", "LANG", "LC_", "TMPDIR", "XDG_", "LD_", "CC", "CXX"),
    *("CUDA", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "OMP_", "MKL_", "GOMP_", "KMP_"),
    *("VLLM_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "HF_", "RAY_"),
)
_SECRETS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
log = logging.getLogger(__name__)


class ServerFailed(SamplerError):
    """A server did not come up, or came up as something else; says why in one line."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """What to start.

    Attributes:
      python: interpreter of the environment that holds vLLM.
      model: folder with the config.json of the policy's architecture. Its weights are
        not read: the policy is published before the first sample.
      dtype: serving dtype, "bfloat16" or "float32".
      max_model_len: prompt and completion together, in tokens.
      max_num_seqs: completions decoded together.
      devices: GPU ids of this server, tensor-parallel over them; none means CPU.
      gpu_memory_utilization: share of each GPU's memory.
      cpu_kv_cache_gib: size of the key-value cache when on the CPU.
      host: address to bind. The routes that change weights must not be open to all:
        anything but loopback asks for `api_key`.
      port: 0 picks a free one.
      api_key: asked of every request when not empty.
      enforce_eager: no compilation: starts sooner, decodes slower.
      load_format: "dummy" skips reading weights that are replaced at once.
      extra_args: appended to the command as they are.
    """

    python: str
    model: str
    dtype: str = "bfloat16"
    max_model_len: int
    max_num_seqs: int = 256
    devices: tuple[int, ...] = ()
    gpu_memory_utilization: float = 0.9
    cpu_kv_cache_gib: int = 1
    host: str = "127.0.0.1"
    port: int = 0
    api_key: str = ""
    enforce_eager: bool = False
    load_format: str = "dummy"
    extra_args: tuple[str, ...] = ()

    def __post_init__(self):
        if self.host not in _LOOPBACK and not self.api_key:
            raise ValueError(
                f"host={self.host}: the routes that replace weights would be open to"
                " the network; set an API key or bind 127.0.0.1"
            )


def check_devices(
    servers: list[tuple[int, ...]],
    trainer: tuple[int, ...],
    *,
    server_fraction: float | None,
    trainer_fraction: float | None,
) -> None:
    """Refuses GPUs that are shared without both shares of their memory being set.

    Args:
      servers: GPU ids of each server.
      trainer: GPU ids that JAX holds.
      server_fraction: vLLM's share of a GPU where the user has set it.
      trainer_fraction: XLA_PYTHON_CLIENT_MEM_FRACTION where the user has set it.

    Raises:
      ValueError: names the GPUs and the two settings.
    """
    taken = collections.Counter(gpu for devices in servers for gpu in devices)
    if twice := sorted(gpu for gpu, count in taken.items() if count > 1):
        raise ValueError(f"GPUs {twice} are given to more than one vLLM server")
    shared = sorted(taken.keys() & set(trainer))
    if not shared:
        return
    if server_fraction is None or trainer_fraction is None:
        raise ValueError(
            f"GPUs {shared} are used by both JAX and vLLM; give them disjoint sets"
            " (CUDA_VISIBLE_DEVICES and rollout.vllm.devices), or set both"
            " rollout.vllm.gpu_memory_utilization and XLA_PYTHON_CLIENT_MEM_FRACTION"
        )
    if server_fraction + trainer_fraction > 1:
        raise ValueError(
            f"GPUs {shared} are shared with {server_fraction} for vLLM"
            f" (rollout.vllm.gpu_memory_utilization) and {trainer_fraction} for JAX"
            " (XLA_PYTHON_CLIENT_MEM_FRACTION): more than the whole memory"
        )


def command(spec: ServerSpec, *, port: int, name: str) -> list[str]:
    """The server's command line.

    `vllm serve` is the same program, but its entry point looks for a distribution that
    is called `vllm`, and the CPU build is not.
    """
    arguments = {
        "--model": spec.model,
        "--served-model-name": name,
        "--host": spec.host,
        "--port": port,
        "--dtype": spec.dtype,
        "--max-model-len": spec.max_model_len,
        "--max-num-seqs": spec.max_num_seqs,
        "--load-format": spec.load_format,
        # A checkpoint's own sampling defaults must not fill what a request leaves out.
        "--generation-config": "vllm",
        # Log-probs of the distribution that was sampled, not of the raw logits.
        "--logprobs-mode": "processed_logprobs",
        "--worker-extension-cls": "rollout.vllm.extension.PolicyWorker",
    }
    switches = ["--enable-scale-out", "--skip-tokenizer-init"]
    switches += ["--disable-uvicorn-access-log"]
    if spec.load_format == "dummy":
        # vLLM's reload leaves a tied head on the old weights; the trainer sends one.
        arguments["--hf-overrides"] = '{"tie_word_embeddings": false}'
    if spec.enforce_eager:
        switches.append("--enforce-eager")
    if spec.api_key:
        arguments["--middleware"] = "rollout.vllm.extension.RequireKey"
    if spec.devices:
        arguments["--tensor-parallel-size"] = len(spec.devices)
        arguments["--gpu-memory-utilization"] = spec.gpu_memory_utilization
    else:
        # vLLM rewinds a request's generator when a prompt is read in two parts, and
        # torch's CPU generator cannot be: with seeds, that ends the engine.
        switches.append("--no-enable-chunked-prefill")
        arguments["--max-num-batched-tokens"] = max(spec.max_model_len, 4096)
    module = [spec.python, "-m", "vllm.entrypoints.openai.api_server"]
    flat = [str(part) for pair in arguments.items() for part in pair]
    return [*module, *flat, *switches, *spec.extra_args]


def environment(spec: ServerSpec) -> dict[str, str]:
    """The server's environment: of the trainer's what concerns it, and no key."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key.startswith(_NEEDS) and not key.endswith(_SECRETS)
    }
    added = {
        "PYTHONPATH": str(_ROOT),
        # Mounts the routes that pause, update and resume.
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if spec.api_key:
        # Not an argument: those are readable by every user of the machine.
        added["VLLM_API_KEY"] = spec.api_key
    if spec.devices:
        added["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, spec.devices))
    else:
        added["CUDA_VISIBLE_DEVICES"] = ""
        added["VLLM_CPU_KVCACHE_SPACE"] = str(spec.cpu_kv_cache_gib)
        # One process schedules and decodes, as on a single GPU. vLLM's own way here is
        # a second one, bound to all cores but one, whatever else runs there.
        usual = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        usual["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
        inherited = usual | inherited
    return inherited | added


class VllmServer:
    """A server that this process started and that ends with it, however it ends."""

    def __init__(self, spec: ServerSpec, *, log_file: pathlib.Path):
        """Prepares a server without starting it.

        Args:
          spec: what to start.
          log_file: receives the server's output, appended over restarts.
        """
        self.spec = spec
        self.log_file = log_file
        self._name = f"policy-{secrets.token_hex(4)}"
        self._process: subprocess.Popen | None = None
        self._lifeline: int | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://{self.spec.host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process at the root of the server's tree, while it lives."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive else None

    def start(self) -> None:
        """Starts the process; `wait_ready` tells when it serves.

        Raises:
          ServerFailed: the port is taken.
        """
        self._port = _claim_port(self.spec.host, self.spec.port)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        run = command(self.spec, port=self._port, name=self._name)
        with self.log_file.open("ab") as output:
            self._log_start = output.tell()
            self._process, self._lifeline = leash.start(
                run,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.log_file.parent,
                env=environment(self.spec),
            )

    def wait_ready(self, timeout: float) -> None:
        """Waits until the server answers as the one that was started.

        Args:
          timeout: seconds.

        Raises:
          ServerFailed: it exited, or took longer; with the end of its log.
        """
        client = VllmClient(self.url, api_key=self.spec.api_key)
        begin = reported = time.monotonic()
        while True:
            if self.pid is None:
                raise ServerFailed(
                    f"vLLM exited with {self._process.returncode} while starting"
                    f" ({self.log_file}):\n{self.log_tail()}"
                )
            try:
                client.call("GET", "/health", timeout=2)
                break
            except ServerGone:
                time.sleep(0.1)
            waited = time.monotonic() - begin
            if waited > timeout:
                self.stop()
                raise ServerFailed(
                    f"vLLM was not ready after {timeout:.0f} s"
                    f" ({self.log_file}):\n{self.log_tail()}"
                )
            if time.monotonic() - reported > 15:
                reported = time.monotonic()
                log.info("waiting for vLLM at %s, %.0f s", self.url, waited)
        found = client.served_model()["id"]
        if found != self._name:
            self.stop()
            raise ServerFailed(f"{self.url} is answered by another server ({found})")
        log.info("vLLM at %s ready in %.0f s", self.url, time.monotonic() - begin)

    def log_tail(self, lines: int = 30) -> str:
        """The last lines that this start of the server wrote."""
        with self.log_file.open("rb") as file:
            file.seek(self._log_start)
            text = file.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def last_error(self) -> str:
        """The last exception that the server's log shows, and where the log is."""
        found = re.findall(r"\b\w*(?:Error|Exception): .+", self.log_tail(1000))
        told = [text for text in found if "EngineDead" not in text]
        return f"{told[-1] if told else 'no reason given'} ({self.log_file})"

    def stop(self, *, at_once: bool = False) -> None:
        """Ends the whole tree. Safe to call twice.

        Args:
          at_once: kill without a grace period (a hung server hears nothing else).
        """
        if self._process is None:
            return
        first = self._lifeline is not None
        if first:
            # A leash that was killed closes its end before it can be waited for.
            with contextlib.suppress(BrokenPipeError):
                if at_once:
                    os.write(self._lifeline, b"k")
            os.close(self._lifeline)
            self._lifeline = None
        try:
            self._process.wait(leash.GRACE_SECONDS + leash.TRACKER_SECONDS + 4)
        except subprocess.TimeoutExpired:
            leash.kill_tree(self._process.pid)
            self._process.kill()
            self._process.wait()
        if first:  # later the number may be another's
            leash.kill_session(self._process.pid)


def _claim_port(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServerFailed(f"port {port} on {host}: {error.strerror}") from None
        return probe.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder with config.json")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max_model_len", type=int, required=True)
    parser.add_argument("--max_num_seqs", type=int, default=256)
    parser.add_argument("--devices", type=int, nargs="*", default=[], help="GPU ids")
    parser.add_argument("--gpu_memory_utilization", type=float, default=0.9)
    parser.add_argument("--cpu_kv_cache_gib", type=int, default=1)
    parser.add_argument("--enforce_eager", action="store_true")
    options, extra = parser.parse_known_args()
    if any(word.startswith(("--api-key", "--api_key")) for word in extra):
        # Arguments are readable by every user of the machine.
        parser.error("give the key as VLLM_API_KEY in the environment")
    spec = ServerSpec(
        python=sys.executable,
        extra_args=tuple(extra),
        api_key=os.environ.get("VLLM_API_KEY", ""),
        **vars(options) | {"devices": tuple(options.devices)},
    )
    run = command(spec, port=spec.port, name="policy")
    os.execve(run[0], run, environment(spec))


if __name__ == "__main__":
    main()
