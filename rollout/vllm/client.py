"""Talks to one vLLM server over HTTP: token ids in, token ids out.

Imports only the standard library and NumPy. Every call has a deadline, and every error
names the server and quotes its answer.
"""

import contextlib
import http.client
import json
import pathlib
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rollout.types import Completion, SamplerError, SamplingParams

GENERATE = "/inference/v1/generate"
ABORT = "/inference/v1/abort_requests"
COMPLETIONS = "/v1/completions"
LOAD_ADAPTER = "/v1/load_lora_adapter"
ADAPTER = "policy-adapter"  # the name of served adapters, also in `extension`
_REQUEST = "generate-tokens-"  # vLLM's prefix of request names
_TRAINING = (  # routes that training needs
    *("/collective_rpc", "/pause", "/resume", "/update_weight_version"),
    *(GENERATE, ABORT),
)


class ServerGone(ConnectionError):
    """No answer: the process died, hangs, or was never there."""


class ServerBusy(RuntimeError):
    """503: the request can be repeated later."""


class OutOfStep(SamplerError):
    """A server does not serve the published policy, or does not report versions."""


class ServerRefused(SamplerError):
    """The server answered with an HTTP status other than 200 and 503."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status

    @property
    def internal(self) -> bool:
        """Whether the server failed, so that its engine may be dead."""
        return self.status >= 500


class LoadFailed(ServerRefused):
    """The server could not load a version; it is paused, with a mix of weights."""


class Aborted(RuntimeError):
    """The server ended a request: by `VllmClient.abort`, or for an update.

    Attributes:
      drawn: the tokens sampled so far, unfinished.
    """

    def __init__(self, message: str, drawn: Completion):
        super().__init__(message)
        self.drawn = drawn


class VllmClient:
    """Sends requests to one server.

    Connections are not reused: a new one costs 0.2 ms on loopback, and a reused one
    that the server has closed meanwhile looks like a dead server.
    """

    def __init__(self, url: str, *, api_key: str = ""):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"server url {url!r}: expected http://host:port")
        self.url = url.rstrip("/")
        self._address = (parts.hostname, parts.port or 80)
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._model = ""
        self.reports_versions = True

    # -- requests --------------------------------------------------------------------

    def call(
        self, method: str, path: str, body: Any = None, *, timeout: float | None
    ) -> Any:
        """Sends one request; returns the decoded JSON answer, None if it is empty.

        Args:
          method: "GET" or "POST".
          path: from the root, query included.
          body: sent as JSON.
          timeout: seconds of silence allowed; None waits until `cut`.

        Raises:
          ServerGone, ServerBusy, ServerRefused: see there.
        """
        text = self._exchange(method, path, body, timeout)
        return json.loads(text) if text else None

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
        if answer.status != 200:
            raise ServerRefused(message, answer.status)
        return text

    def cut(self) -> None:
        """Breaks every open connection: the callers get `ServerGone` at once.

        The server ends the generation of a request whose connection is gone.
        """
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            # Read once: the owner may set it to None meanwhile.
            if (sock := connection.sock) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Breaks every open connection, and those that are opened later."""
        self._closed = True
        self.cut()

    # -- attaching -------------------------------------------------------------------

    def attach(self, *, max_model_len: int) -> float:
        """Finds out what this server serves, and which route generates tokens.

        Args:
          max_model_len: longest prompt and completion that will be requested.

        Returns:
          The log-prob, in nats, that it reports of the only token it could sample.

        Raises:
          ServerRefused: it serves less.
        """
        model = self.call("GET", "/v1/models", timeout=10)["data"][0]
        self._model = model["id"]
        if model["max_model_len"] < max_model_len:
            raise ServerRefused(
                f"{self.url} serves up to {model['max_model_len']} tokens; prompt and"
                f" completion may take {max_model_len} here (--max-model-len)"
            )
        only = SamplingParams(max_tokens=1, stop_token_ids=(), ignore_stop=True)
        self.reports_versions = True
        try:
            drawn, _ = self._generate([0], only, seed=0, top_k=1, timeout=120)
        except ServerRefused as error:
            if error.status not in (403, 404):
                raise
            self.reports_versions = False
            drawn, _ = self._generate([0], only, seed=0, top_k=1, timeout=120)
        return drawn[0][1]

    def attach_to_train(
        self,
        *,
        max_model_len: int,
        policy: dict[str, Any],
        timeout: float,
        adapter: bool = False,
    ) -> None:
        """Attaches to a server that will serve a policy in training.

        Args:
          max_model_len: longest prompt and completion that will be requested.
          adapter: whether only adapters will be published to it.
          policy: arguments of `extension.PolicyWorker.check_policy`.
          timeout: seconds for that check.

        Raises:
          ServerRefused: what is missing, and how the server should be started.
        """
        routes = self.call("GET", "/openapi.json", timeout=30)["paths"]
        needed = (*_TRAINING, LOAD_ADAPTER) if adapter else _TRAINING
        if missing := [route for route in needed if route not in routes]:
            how = " --lora_rank RANK" if adapter else ""
            raise ServerRefused(
                f"{self.url} lacks {' '.join(missing)}: start it by"
                f" `python -m rollout.vllm.server{how}`, with vLLM 0.32 or newer"
            )
        # A trainer that was killed may have left it paused.
        self.call("POST", "/resume", timeout=30)
        # With a single candidate the log-prob is 0, unless it is of raw logits.
        logprob = self.attach(max_model_len=max_model_len)
        if abs(logprob) > 1e-6:
            raise ServerRefused(
                f"{self.url} reports log-probs of the raw logits ({logprob:.3f}"
                " where 0 is due): start it with --logprobs-mode processed_logprobs"
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
        """Samples one completion.

        Args:
          prompt: token ids.
          params: `n` is ignored.
          seed: of this completion alone.
          version_of: reads the server's version label.
          name: of this request alone, for `abort`.
          timeout: seconds until `ServerGone`; None waits until `cut`.

        Raises:
          Aborted: the server dropped the request (`abort`, an update in abort mode).
          OutOfStep: it does not report a version for some token.
          ServerGone, ServerBusy, ServerRefused: see there.
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
                    f"{self.url} reports no version of {missing.size} of {len(drawn)}"
                    f" tokens, first of token {missing[0]}"
                )
        logprobs = np.array([logprob for _, logprob in drawn], np.float32)
        reason = choice["finish_reason"]
        if reason not in ("stop", "length"):
            raise Aborted(
                f"{self.url}: finish reason {reason}",
                Completion(token_ids, logprobs, "unfinished", versions),
            )
        return Completion(token_ids, logprobs, reason, versions)

    def abort(self, names: Sequence[str], *, timeout: float) -> None:
        """Ends requests by name, except those that the server does not have yet."""
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
        # Every field is set: the server fills in none of its own.
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
            # Only the ids below end a completion.
            "ignore_eos": True,
            "stop_token_ids": [] if params.ignore_stop else list(params.stop_token_ids),
            "logprobs": 0,
        }
        token_ids = [int(token) for token in prompt]
        body: dict[str, Any] = {"model": self._model}
        if self.reports_versions:
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
        """Returns the tokens read and generated so far; a hung server's stay equal."""
        text = self._exchange("GET", "/metrics", None, timeout).decode()
        counters = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(counters)
        )

    # -- weights ---------------------------------------------------------------------

    def update(
        self,
        *,
        label: str,
        path: str,
        checksums: dict[str, int],
        mode: str,
        timeout: float,
        adapter: bool = False,
    ) -> float:
        """Loads a version under a pause; the server serves it afterwards.

        Args:
          label: reported by the server for the tokens sampled from here on.
          path, checksums: of the weights; see `extension.PolicyWorker.load_policy`.
          mode: "abort" drops what is in flight, "keep" continues it under the new
            weights.
          timeout: seconds for each phase.
          adapter: whether they are adapters of the model that the server has read.

        Returns:
          Seconds for which the server was paused.

        Raises:
          LoadFailed: in the server's own words; it stays paused.
          ServerGone, ServerBusy, ServerRefused: see there.
        """

        def post(path: str, body: Any = None) -> None:
            self.call("POST", path, body, timeout=timeout)

        begin = time.monotonic()
        # Cached prefixes belong to the old weights.
        post(f"/pause?mode={mode}&clear_cache=true")
        try:
            self._call_workers(
                "load_adapter" if adapter else "load_policy",
                timeout=timeout,
                path=path,
                checksums=checksums,
            )
            if adapter:
                self._name_adapter(path, timeout=timeout)
        except ServerRefused as error:
            if error.internal:
                raise
            raise LoadFailed(str(error)) from None
        post("/update_weight_version", {"new_version": label})
        post("/resume")
        return time.monotonic() - begin

    def _name_adapter(self, path: str, *, timeout: float) -> None:
        """Makes requests use the adapters that the workers have loaded."""
        models = self.call("GET", "/v1/models", timeout=timeout)["data"]
        if ADAPTER not in [model["id"] for model in models]:
            folder = str(pathlib.Path(path).parent)
            body = {"lora_name": ADAPTER, "lora_path": folder}
            self._exchange("POST", LOAD_ADAPTER, body, timeout)
        self._model = ADAPTER

    def _call_workers(self, method: str, *, timeout: float, **arguments: Any) -> None:
        """Calls a method of `extension.PolicyWorker` on all workers of the server."""
        order = {"method": method, "kwargs": arguments}
        answer = self.call("POST", "/collective_rpc", order, timeout=timeout)
        for error in answer["results"]:
            if error:
                raise ServerRefused(f"{self.url}: {error}")


def _error_text(answer: bytes) -> str:
    try:
        error = json.loads(answer)
    except ValueError:
        return answer.decode(errors="replace")[:500]
    for key in ("error", "message", "detail"):
        if isinstance(error, dict) and key in error:
            error = error[key]
    return str(error)[:1000]
