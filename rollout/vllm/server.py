"""Starts and ends one vLLM server process.

This command runs a server for trainers on other hosts, without JAX:

    python -m rollout.vllm.server --model DIR --max_model_len 4096 --port 8000
"""

import argparse
import contextlib
import dataclasses
import errno
import logging
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import time

from rollout.cores import usable_cores
from rollout.types import SamplerError
from rollout.vllm import supervisor
from rollout.vllm.client import VllmClient, api_key

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Prefixes of environment variables that a server inherits: system, accelerators, vLLM.
_INHERITED = (
    *("PATH", "HOME", "USER", "LANG", "LC_", "TMPDIR", "XDG_", "LD_", "CC", "CXX"),
    *("http", "HTTP", "no_proxy", "NO_PROXY", "SSL_CERT_", "REQUESTS_CA_BUNDLE"),
    *("CUDA", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "OMP_", "MKL_", "GOMP_", "KMP_"),
    *("VLLM_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "HF_", "RAY_"),
)
# Secrets, and a port that several servers would share, or that Kubernetes sets to the
# address of a service named "vllm".
_EXCLUDED = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "VLLM_PORT")
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # LoRA ranks that vLLM supports
_CPU_KV_CACHE_GIB = "2"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
log = logging.getLogger(__name__)


class ServerFailed(SamplerError):
    """Reports that a server did not start, cannot be restarted or fails repeatedly."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    python: str  # interpreter of the environment with vLLM
    model: str  # folder with the model's config.json, or a Hub id
    dtype: str = "bfloat16"  # or "float32"
    max_model_len: int  # prompt and completion together, in tokens
    max_num_seqs: int = 256  # completions decoded together
    devices: tuple[int, ...] = ()  # ids of tensor-parallel GPUs; empty for the CPU
    gpu_memory_utilization: float = 0.9  # share of each GPU's memory
    host: str = "127.0.0.1"  # other hosts need a key: requests can replace weights
    api_key: str = ""  # key of all requests but /health; empty for none
    enforce_eager: bool = False  # skip compilation: faster start, slower decoding
    load_format: str = "dummy"  # random weights until a publish; "auto" reads `model`
    lora_rank: int = 0  # above 0: adapters are published, and "auto" is used
    extra_args: tuple[str, ...] = ()  # arguments appended to the command

    def __post_init__(self):
        if not 0 <= self.lora_rank <= _RANKS[-1]:
            raise ValueError(
                f"lora_rank={self.lora_rank}: must lie in [0, {_RANKS[-1]}]"
            )
        if self.host not in _LOOPBACK and not self.api_key:
            raise ValueError(
                f"host={self.host}: without an API key, anyone on the network could"
                " replace the weights; set VLLM_API_KEY, or use 127.0.0.1"
            )


def command(spec: ServerSpec, *, port: int) -> list[str]:
    """Returns the server's command line."""
    load_format = "auto" if spec.lora_rank else spec.load_format
    is_folder = os.path.isdir(spec.model)  # otherwise a Hub id
    model = os.path.abspath(spec.model) if is_folder else spec.model
    arguments = {
        "--model": model,
        "--served-model-name": "policy",
        "--host": spec.host,
        "--port": port,
        "--dtype": spec.dtype,
        "--max-model-len": spec.max_model_len,
        "--max-num-seqs": spec.max_num_seqs,
        "--load-format": load_format,
        # Ignore the model's own sampling defaults.
        "--generation-config": "vllm",
        # Return log-probs at the sampling temperature, not of the raw logits.
        "--logprobs-mode": "processed_logprobs",
        "--worker-extension-cls": "rollout.vllm.extension.PolicyWorker",
    }
    switches = ["--enable-scale-out", "--skip-tokenizer-init"]
    switches += ["--disable-uvicorn-access-log"]
    if load_format == "dummy":
        # vLLM's reload does not update a tied head; the trainer publishes the head.
        arguments["--hf-overrides"] = '{"tie_word_embeddings": false}'
    if spec.lora_rank:
        arguments["--max-lora-rank"] = next(r for r in _RANKS if r >= spec.lora_rank)
        arguments["--max-loras"] = 1
        switches.append("--enable-lora")
    if spec.enforce_eager:
        switches.append("--enforce-eager")
    if spec.api_key:
        arguments["--middleware"] = "rollout.vllm.extension.RequireKey"
    if spec.devices:
        arguments["--tensor-parallel-size"] = len(spec.devices)
        arguments["--gpu-memory-utilization"] = spec.gpu_memory_utilization
    else:
        # For a prompt read in two chunks, vLLM rewinds the request's random generator.
        # torch cannot rewind one on a CPU, so a seeded request would end the engine.
        switches.append("--no-enable-chunked-prefill")
        arguments["--max-num-batched-tokens"] = max(spec.max_model_len, 4096)
    # `vllm serve` requires a distribution `vllm`; the CPU build has another name.
    module = [os.path.abspath(spec.python), "-m", "vllm.entrypoints.openai.api_server"]
    flat = [str(part) for pair in arguments.items() for part in pair]
    return [*module, *flat, *switches, *spec.extra_args]


def environment(spec: ServerSpec) -> dict[str, str]:
    """Returns the server's environment, without secrets other than `spec.api_key`."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key.startswith(_INHERITED) and not key.endswith(_EXCLUDED)
    }
    added = {
        "PYTHONPATH": str(_ROOT),
        # Enable the routes that pause, update and resume.
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if spec.lora_rank:
        added["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if spec.api_key:
        # Not an argument, because every user of the machine can read arguments.
        added["VLLM_API_KEY"] = spec.api_key
    if spec.devices:
        added["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, spec.devices))
    else:
        added["CUDA_VISIBLE_DEVICES"] = ""
        added["VLLM_CPU_KVCACHE_SPACE"] = _CPU_KV_CACHE_GIB
        # Schedule and decode in one process that has all cores, as on a single GPU.
        usual = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        usual["OMP_NUM_THREADS"] = str(usable_cores())
        inherited = usual | inherited
    return inherited | added


def free_port(host: str = "127.0.0.1") -> int:
    """Returns a free port below Linux's default range for outgoing connections."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        try:
            with socket.create_server((host, port)):
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


class ServerProcess:
    """Starts and ends one server, which also ends if this process is killed."""

    def __init__(self, spec: ServerSpec, *, log_file: pathlib.Path):
        self.spec = spec
        self.log_file = log_file
        self._process: subprocess.Popen | None = None
        self._lifeline: int | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://{self.spec.host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Returns the id of the supervisor process; None if none runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Starts the process; call `wait_ready` before the first request."""
        self._port = free_port(self.spec.host)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        run = command(self.spec, port=self._port)
        with self.log_file.open("ab") as output:
            self._log_start = output.tell()
            self._process, self._lifeline = supervisor.start(
                run,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.log_file.parent,
                env=environment(self.spec),
            )

    def wait_ready(self, timeout: float) -> None:
        """Waits up to `timeout` seconds until the server answers.

        Raises ServerFailed, with the last error, if the server ends or is too slow.
        """
        process = self._process
        assert process is not None, "call start first"
        client = VllmClient(self.url, api_key=self.spec.api_key)
        begin = time.monotonic()
        while process.poll() is None and (waited := time.monotonic() - begin) < timeout:
            if client.healthy():
                log.info("vLLM at %s ready in %.0f s", self.url, waited)
                return
            time.sleep(0.1)
        if process.poll() is None:
            self.stop()
            reason = f"was not ready after {timeout:.0f} s"
        else:
            reason = f"exited with status {process.returncode} while starting"
            if process.returncode == 128 + signal.SIGKILL:
                reason += " (killed, usually because the machine lacks memory)"
        error = self.last_error()
        if "unrecognized arguments" in error:
            error += "; use vLLM 0.32 or newer"
        raise ServerFailed(f"vLLM {reason}: {error}")

    def last_error(self) -> str:
        """Returns the last error, or line, logged since the start, and the log file."""
        with self.log_file.open("rb") as file:
            file.seek(self._log_start)
            text = file.read().decode(errors="replace")
        logged = text.rstrip().splitlines()[-1000:]
        found = re.findall(r"\b\w*(?:Error|Exception): .+", "\n".join(logged))
        # Some errors mean only that there was an earlier one, the "root cause".
        causes = [c for c in found if not re.search("EngineDead|root cause", c)]
        lines = causes or logged
        return f"{lines[-1] if lines else 'no output'} ({self.log_file})"

    def stop(self, *, at_once: bool = False) -> None:
        """Ends the process tree, `at_once` or after a grace period."""
        if self._process is None or self._lifeline is None:
            return
        # The pipe is broken if the supervisor itself was killed.
        with contextlib.suppress(BrokenPipeError):
            if at_once:
                os.write(self._lifeline, b"k")
        os.close(self._lifeline)
        self._lifeline = None
        try:
            self._process.wait(
                supervisor.GRACE_SECONDS + supervisor.TRACKER_SECONDS + 4
            )
        except subprocess.TimeoutExpired:
            supervisor.kill_tree(self._process.pid)
            self._process.kill()
            self._process.wait()
        supervisor.kill_session(self._process.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--model", type=os.path.expanduser, required=True, help="folder or Hub id"
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max_model_len", type=int, required=True)
    parser.add_argument("--max_num_seqs", type=int, default=256)
    parser.add_argument("--devices", type=int, nargs="*", default=[], help="GPU ids")
    parser.add_argument("--gpu_memory_utilization", type=float, default=0.9)
    parser.add_argument("--enforce_eager", action="store_true")
    parser.add_argument(
        "--lora_rank",
        type=int,
        default=0,
        help="rank of the adapters, if the trainer publishes only adapters",
    )
    options, extra = parser.parse_known_args()
    if any(word.startswith(("--api-key", "--api_key")) for word in extra):
        # Every user of the machine can read arguments.
        parser.error("--api-key: set VLLM_API_KEY in the environment instead")
    port = options.__dict__.pop("port")
    try:
        spec = ServerSpec(
            python=sys.executable,
            extra_args=tuple(extra),
            api_key=api_key(),
            **vars(options) | {"devices": tuple(options.devices)},
        )
    except ValueError as error:
        parser.error(str(error))
    run = command(spec, port=port)
    os.execve(run[0], run, environment(spec))


if __name__ == "__main__":
    main()
