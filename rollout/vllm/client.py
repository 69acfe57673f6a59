"""Sends requests to one vLLM server over HTTP, with token ids as input and output.

Requires only the standard library and NumPy, because `extension` imports this module
inside vLLM.
"""

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import socket
import sys
import threading
import time
import urllib.parse
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rollout.types import Completion, SamplerError, SamplingParams

GENERATE = "/inference/v1/generate"
ABORT = "/inference/v1/abort_requests"
COMPLETIONS = "/v1/completions"
LOAD_ADAPTER = "/v1/load_lora_adapter"
ADAPTER = "policy-adapter"  # the name of the served adapters
_REQUEST = "generate-tokens-"  # the prefix that vLLM adds to request names
_CONTROL = ("/collective_rpc", "/pause", "/resume", "/update_weight_version")
_WORDS = 512  # 32-bit words per row of a checksum
_ADVICE = (
    "give the address of a vLLM server (docs/vllm.md) in config.rollout.vllm.url or"
    " --url, and its key in VLLM_API_KEY"
)


class ServerGone(ConnectionError):
    """Reports that a server does not answer, or that sampling was stopped."""


class ServerBusy(RuntimeError):
    """Reports HTTP status 503; the request can be repeated later."""


class OutOfStep(SamplerError):
    """Reports that a server's policy version is unknown, or not the published one."""


class ServerBroken(SamplerError):
    """Reports an HTTP status of 500 or more, except 503: the engine may be dead."""


class ServerRefused(SamplerError):
    """Reports an HTTP status below 500 except 200, or that a server failed a check."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status


class LoadFailed(ServerRefused):
    """Reports that a server could not load weights, is paused, and may mix versions."""


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedWeights:
    label: str  # version label that servers report for each sampled token
    path: str  # safetensors file with Hugging Face or PEFT names
    checksums: dict[str, int]  # checksum of each tensor in the file


def checksum(data: np.ndarray) -> int:
    """Returns a 64-bit checksum of a C-contiguous array's bytes.

    The checksum is several times as fast as CRC-32. The bytes form a table of 32-bit
    words. The result combines a CRC-32 of the row sums with a CRC-32 of the column
    sums. Sums are modulo 2**32, so a changed word changes one row sum and one column
    sum. Bytes that do not fill a row are appended to both inputs of CRC-32.
    """
    flat = data.reshape(-1).view(np.uint8)
    in_rows = flat.size - flat.size % (4 * _WORDS)
    table = flat[:in_rows].view(np.uint32).reshape(-1, _WORDS)
    columns, rows = (
        zlib.crc32(
            flat[in_rows:].data, zlib.crc32(table.sum(axis=axis, dtype=np.uint32).data)
        )
        for axis in (0, 1)
    )
    return columns << 32 | rows


def api_key() -> str:
    """Returns the servers' API key, VLLM_API_KEY of the environment, or ""."""
    # A line break, as in a key that was read from a file, is invalid in a request.
    return os.environ.get("VLLM_API_KEY", "").strip()


class VllmClient:
    """Sends requests to one server, each over a new connection.

    A reused connection that the server has closed would look like a dead server.
    """

    def __init__(self, url: str, *, api_key: str = ""):
        parts = urllib.parse.urlsplit(url)
        try:
            host, port = parts.hostname, parts.port or 80
        except ValueError:  # the port is not a number
            host, port = None, 0
        if parts.scheme != "http" or not host:
            raise ValueError(
                f"server url {url!r}: must be http://HOST:PORT; correct"
                " config.rollout.vllm.url or --url"
            )
        self.url = f"http://{parts.netloc}"  # without a path such as /v1
        self._address = host, port
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._model = ""
        self._reports_versions = True

    # -- requests --------------------------------------------------------------------

    def call(
        self, method: str, path: str, body: Any = None, *, timeout: float | None
    ) -> Any:
        """Sends one request; returns the JSON of the answer, or None if it is empty.

        Args:
          body: sent as JSON.
          timeout: the maximum seconds without data; None for no limit.

        Raises:
          ServerGone: no answer came, or `cut` or `close` broke the connection.
          ServerBusy: the status is 503.
          ServerBroken: the status is 500 or more, but not 503.
          ServerRefused: the status is below 500 but not 200, or the answer is not JSON.
        """
        text = self._exchange(method, path, body, timeout)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise ServerRefused(
                f"{self.url}{path}: the answer is not JSON; {_ADVICE}"
            ) from None

    def _exchange(
        self, method: str, path: str, body: Any, timeout: float | None
    ) -> bytes:
        connection = http.client.HTTPConnection(*self._address, timeout=timeout)
        try:
            with self._lock:
                self._open.add(connection)
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, self._headers)
            if self._closed:
                raise ConnectionError("the client was closed")
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            reason = f"{type(error).__name__} {error}".strip()
            raise ServerGone(f"{self.url}{path}: no answer ({reason})") from None
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()
        message = f"{self.url}{path}: {answer.status} {_error_text(text)}"
        if answer.status == 503:
            raise ServerBusy(message)
        if answer.status >= 500:
            raise ServerBroken(message)
        if answer.status in (401, 403, 404):
            message += f"; {_ADVICE}"
        if answer.status != 200:
            raise ServerRefused(message, answer.status)
        return text

    def healthy(self) -> bool:
        """Returns whether the server is alive; raises ServerRefused as `call` does."""
        try:
            self.call("GET", "/health", timeout=5)
        except (ServerGone, ServerBusy, ServerBroken):
            return False
        return True

    def cut(self) -> None:
        """Breaks all open connections; their callers get `ServerGone` at once.

        The server stops generating for requests whose connection is closed.
        """
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            # Read once, because another thread may set it to None.
            if (sock := connection.sock) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Breaks all open connections; later requests fail with `ServerGone`."""
        self._closed = True
        self.cut()

    # -- checks of a started server --------------------------------------------------

    def attach(self, *, max_model_len: int, names: Sequence[str] = ()) -> float:
        """Checks the server; must be called once before `generate`.

        Prints a warning if no name in `names` is that of the server's model.
        Returns the log-prob, in nats, of a token sampled with top_k=1. It is 0 unless
        the server reports log-probs of the raw logits.

        Raises:
          ServerRefused: the server's maximum length is below `max_model_len`.
          Exception: the errors of `call`.
        """
        answer = self.call("GET", "/v1/models", timeout=10)
        try:
            model = answer["data"][0]
            self._model, longest = model["id"], model["max_model_len"]
        except (LookupError, TypeError):  # such as the server of llama.cpp
            raise ServerRefused(
                f"{self.url}/v1/models: lists no model with max_model_len; {_ADVICE}"
            ) from None
        served = str(model.get("root") or model["id"])  # the server's --model
        if names and pathlib.Path(served).name not in names:
            differs = f"{self.url} serves the model {served!r}, not {names[0]!r}"
            print(f"WARNING: {differs}; check the address", file=sys.stderr)
        if longest < max_model_len:
            raise ServerRefused(
                f"{self.url} has --max-model-len {longest}: must be at least"
                f" {max_model_len}, the longest prompt plus completion"
            )
        only = SamplingParams(max_tokens=1, stop_token_ids=(), ignore_stop=True)
        self._reports_versions = True
        try:
            drawn, _ = self._generate([0], only, seed=0, top_k=1, timeout=120)
        except ServerRefused as error:
            if error.status not in (403, 404):
                raise
            self._reports_versions = False
            drawn, _ = self._generate([0], only, seed=0, top_k=1, timeout=120)
        return drawn[0][1]

    def attach_to_train(
        self,
        *,
        max_model_len: int,
        policy: dict[str, Any],
        timeout: float,
        adapter: bool,
    ) -> None:
        """Calls `attach`, and checks that the server can serve a policy in training.

        Args:
          policy: the arguments of `extension.PolicyWorker.check_policy`.
          timeout: the maximum seconds without data during that check.
          adapter: whether only adapters will be published.

        Raises ServerRefused if a check fails, and the errors of `call`.
        """
        routes = self.call("GET", "/openapi.json", timeout=30)["paths"]
        needed = [*_CONTROL, GENERATE, ABORT, *([LOAD_ADAPTER] if adapter else [])]
        if missing := [route for route in needed if route not in routes]:
            how = " --lora_rank RANK" if adapter else ""
            raise ServerRefused(
                f"{self.url} lacks {' '.join(missing)}: start it with"
                f" `python -m rollout.vllm.server{how}` and vLLM 0.32 or newer"
            )
        # A killed trainer may have left the server paused.
        self.call("POST", "/resume", timeout=30)
        # With a single candidate the processed log-prob is 0.
        logprob = self.attach(max_model_len=max_model_len)
        if abs(logprob) > 1e-6:
            raise ServerRefused(
                f"{self.url} reports log-probs of the raw logits ({logprob:.3g}, not 0,"
                " with top_k=1): start it with --logprobs-mode processed_logprobs"
            )
        self._call_workers("check_policy", timeout=timeout, **policy)

    # -- sampling --------------------------------------------------------------------

    def generate(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        seed: int,
        version_of: Callable[[str], int],
        name: str = "",
        timeout: float | None = None,
    ) -> Completion:
        """Samples a completion, which is unfinished if `abort` or an update ended it.

        Args:
          version_of: converts a version label to a policy version; called with "" for a
            server that reports no labels.
          name: a unique name of the request, for `abort`.
          timeout: the maximum seconds without data; None for no limit.

        Raises:
          OutOfStep: the server does not report the version of a token, or `version_of`
            rejects a label.
          Exception: the errors of `call`.
        """
        drawn, choice = self._generate(
            prompt, params, seed=seed, top_k=0, name=name, timeout=timeout
        )
        token_ids = np.array([token for token, _ in drawn], np.int32)
        spans = choice.get("weight_versions")
        if spans is None:
            versions = np.full(len(drawn), version_of(""), np.int32)
        else:
            versions = np.full(len(drawn), -1, np.int32)
            for span in spans:
                stop = span["end"]
                versions[span["start"] : stop] = version_of(span["version"])
            if (missing := np.flatnonzero(versions < 0)).size:
                raise OutOfStep(
                    f"{self.url} reports no version for {missing.size} of {len(drawn)}"
                    f" tokens, the first at index {missing[0]}; restart the server"
                )
        logprobs = np.array([logprob for _, logprob in drawn], np.float32)
        reason = choice["finish_reason"]
        if reason not in ("stop", "length"):
            reason = "unfinished"
        return Completion(token_ids, logprobs, reason, versions)

    def abort(self, names: Sequence[str], *, timeout: float) -> None:
        """Ends requests by name; names without a running request are ignored."""
        body = {"request_ids": [_REQUEST + name for name in names]}
        self.call("POST", ABORT, body, timeout=timeout)

    def _generate(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        seed: int,
        top_k: int,
        timeout: float | None,
        name: str = "",
    ) -> tuple[list[tuple[int, float]], dict[str, Any]]:
        # Set all fields, so that no default of the server applies.
        sampling = {
            "n": 1,
            "max_tokens": params.max_tokens,
            "min_tokens": 0,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": top_k,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "seed": seed,
            # Only `stop_token_ids` end a completion.
            "ignore_eos": True,
            "stop_token_ids": [] if params.ignore_stop else list(params.stop_token_ids),
            "logprobs": 0,
        }
        token_ids = [int(token) for token in prompt]
        body: dict[str, Any] = {"model": self._model}
        if self._reports_versions:
            body["token_ids"] = token_ids
            body["sampling_params"] = sampling | {"detokenize": False}
            if name:
                body["request_id"] = name
            choice = self.call("POST", GENERATE, body, timeout=timeout)["choices"][0]
            logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        else:
            body |= sampling | {"prompt": token_ids, "return_token_ids": True}
            choice = self.call("POST", COMPLETIONS, body, timeout=timeout)["choices"][0]
            logprobs = choice["logprobs"]["token_logprobs"]
        return list(zip(choice["token_ids"], logprobs, strict=True)), choice

    def tokens_processed(self, *, timeout: float) -> float:
        """Returns the number of tokens that the server has prefilled or generated."""
        text = self._exchange("GET", "/metrics", None, timeout).decode()
        counters = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(counters)
        )

    # -- weights ---------------------------------------------------------------------

    def update(
        self, weights: PublishedWeights, *, mode: str, timeout: float, adapter: bool
    ) -> float:
        """Pauses the server, loads new weights and resumes; returns the paused seconds.

        `adapter` says whether the weights are only adapters of the server's model. The
        mode "abort" drops running requests, "keep" continues them with the new weights.

        Raises:
          LoadFailed: the server could not load the weights, and stays paused.
          Exception: the errors of `call`.
        """
        begin = time.monotonic()
        # Clear cached prefixes, which were computed with the old weights.
        pause = f"/pause?mode={mode}&clear_cache=true"
        self.call("POST", pause, timeout=timeout)
        try:
            self._call_workers(
                "load_adapter" if adapter else "load_policy",
                timeout=timeout,
                path=weights.path,
                checksums=weights.checksums,
            )
            if adapter:
                self._serve_adapter(weights.path, timeout=timeout)
        except ServerRefused as error:
            raise LoadFailed(str(error)) from None
        label = {"new_version": weights.label}
        self.call("POST", "/update_weight_version", label, timeout=timeout)
        self.call("POST", "/resume", timeout=timeout)
        return time.monotonic() - begin

    def _serve_adapter(self, path: str, *, timeout: float) -> None:
        models = self.call("GET", "/v1/models", timeout=timeout)["data"]
        if ADAPTER not in [model["id"] for model in models]:
            folder = str(pathlib.Path(path).parent)
            body = {"lora_name": ADAPTER, "lora_path": folder}
            self._exchange("POST", LOAD_ADAPTER, body, timeout)
        self._model = ADAPTER

    def _call_workers(self, method: str, *, timeout: float, **arguments: Any) -> None:
        """Calls a method of `PolicyWorker` in each worker; raises the first error."""
        order = {"method": method, "kwargs": arguments}
        answer = self.call("POST", "/collective_rpc", order, timeout=timeout)
        for error in answer["results"]:
            if error:
                raise ServerRefused(f"{self.url}: {error}")


def _error_text(answer: bytes) -> str:
    try:
        error = json.loads(answer)
    except ValueError:
        return " ".join(answer.decode(errors="replace").split())[:500]
    for key in ("error", "message", "detail"):
        if isinstance(error, dict) and key in error:
            error = error[key]
    return str(error)[:1000]
