"""What runs inside vLLM: the receiving end of a weight update, and the key check.

vLLM imports this module in its workers (`--worker-extension-cls`) and in its API
server (`--middleware`); the trainer never does. It needs torch and vLLM, and no JAX.

A version that the trainer has published is read, checked and laid out beside the model
while that serves; a refused one leaves it as it is, and the switch takes milliseconds.
"""

import contextlib
import dataclasses
import hmac
import os
import threading
from typing import Any

import torch
import transformers
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from rollout.vllm.memory import Memories
from rollout.vllm.mirror import FileSource, MemorySource, Mirror, Taken
from rollout.vllm.places import check_beacon, find
from rollout.vllm.twin import Twin

BACKEND = "published_policy"
_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def _key() -> str:
    return os.environ.get("VLLM_API_KEY", "")


@dataclasses.dataclass
class InitInfo(WeightTransferInitInfo):
    """What the trainer will send.

    Attributes:
      shapes: each tensor's shape by Hugging Face name.
      dtype: of all tensors, in safetensors' words ("F32", "BF16", "F16").
      beacon: the path or URL of a file that the trainer has just written beside the
        weights to come, or where in its memory it is if they will be there too.
      token: what the beacon holds.
    """

    shapes: dict[str, list[int]]
    dtype: str
    beacon: str | dict[str, Any]
    token: str


@dataclasses.dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """Which of the staged versions is to be served: the last one."""

    version: str


@dataclasses.dataclass
class Staged:
    """A version on its way: `state` is "working", then "ready" or "refused".

    Attributes:
      why: it was refused.
      bytes: read for it.
      healed: tensors that had to come whole where a delta was announced, and why.
    """

    version: str
    state: str = "working"
    why: str = ""
    bytes: int = 0
    healed: dict[str, str] = dataclasses.field(default_factory=dict)


def served_shapes(config: transformers.PretrainedConfig) -> dict[str, list[int]]:
    """Names and shapes of the architecture that `config` describes, no bytes spent."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return {name: list(p.shape) for name, p in model.named_parameters()}


class PublishedPolicyEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Lays published versions out in the background, and switches to them."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    _mirror: Mirror | None = None
    _twin: Twin | None = None
    _thread: threading.Thread | None = None
    _staged = Staged("none", "refused", "nothing was staged")

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Agrees with the trainer on the model, the dtype and the place.

        Raises:
          ValueError: the trainer trains another model than this one, or writes where
            this server cannot read.
        """
        served = served_shapes(self.model_config.hf_config)
        dtype = _DTYPES[self.model_config.dtype]
        if dtype != init_info.dtype:
            raise ValueError(f"serving dtype {dtype}, trainer sends {init_info.dtype}")
        for name in sorted(served.keys() | init_info.shapes.keys()):
            here, there = served.get(name), init_info.shapes.get(name)
            if here != there:
                raise ValueError(
                    f"wrong model: {name} is {here} on the server and {there} in the"
                    " trainer (None: it has no such tensor)"
                )
        check_beacon(
            init_info.beacon, init_info.token, key=_key(), device=self._device_index()
        )
        self._shapes = served
        self._dtype = dtype

    def stage(self, announced: dict[str, Any]) -> None:
        """Begins to lay a version out; returns at once, and the model serves on.

        Args:
          announced: what the `stage` of the trainer's `WeightTransport` returned.
        """
        self._staged = Staged(announced["version"])
        self._thread = threading.Thread(
            target=self._lay_out,
            args=(announced, self._staged, self._thread),
            daemon=True,
        )
        self._thread.start()

    def staged(self) -> Staged:
        return self._staged

    def _lay_out(
        self,
        announced: dict[str, Any],
        staged: Staged,
        before: threading.Thread | None,
    ) -> None:
        # Of a trainer that is gone; two may not write to one mirror.
        if before is not None:
            before.join()
        # The worker is bound to the cores that it decodes on, and its threads with it.
        os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))
        if self.device.type != "cpu":
            torch.accelerator.set_device_index(self.device)
        try:
            self._mirror = self._mirror or Mirror(self._shapes, self._dtype)
            self._twin = self._twin or Twin(self.model, self.device)
            taken = self._take(announced, staged)
            dtype = self.model_config.dtype
            self._twin.load(
                (name, torch.from_numpy(bits).view(dtype))
                for name, bits in self._mirror.tensors.items()
            )
            staged.bytes, staged.healed = taken.bytes, taken.healed
            staged.state = "ready"
        except Exception as error:
            staged.why = str(error) or repr(error)
            staged.state = "refused"

    def _take(self, announced: dict[str, Any], staged: Staged) -> Taken:
        tensors = announced["tensors"]
        if "whole" not in announced:
            with contextlib.closing(Memories(self._device_index())) as memories:
                source = MemorySource(tensors, memories, self._shapes, self._dtype)
                return self._mirror.take(tensors, source)
        whole, delta = (
            find(announced[file], key=_key(), wanted=lambda: staged is self._staged)
            for file in ("whole", "delta")
        )
        source = FileSource(whole, delta, self._shapes, self._dtype)
        return self._mirror.take(tensors, source)

    def _device_index(self) -> int:
        return self.device.index or 0

    def start_weight_update(self) -> None:
        """Nothing: what can be refused was judged when it was staged."""

    def update_weights(self, update_info: dict) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Agrees on the version to switch to.

        Raises:
          ValueError: it is not the one that lies ready. The model is as it was.
        """
        staged = self._staged
        if (staged.version, staged.state) != (update_info.version, "ready"):
            raise ValueError(
                f"version {update_info.version} is to be served; {staged.version} is"
                f" {staged.state} {staged.why}"
            )

    def finish_weight_update(self) -> None:
        """The switch. What was served before is gone."""
        if self._staged.state != "ready":
            raise ValueError(f"version {self._staged.version} does not lie ready")
        self._twin.switch()
        self._staged.state = "served"

    def shutdown(self) -> None:
        """The thread is a daemon, and memory goes with the process."""


WeightTransferEngineFactory.register_engine(BACKEND, PublishedPolicyEngine)


class PolicyWorker:
    """Mixed into vLLM's worker; importing this module is what registers the engine.

    Its methods are called over /collective_rpc.
    """

    def stage_version(self, announced: dict[str, Any]) -> None:
        """See `PublishedPolicyEngine.stage`. Ends an update that was left open."""
        self._weight_update_active = False
        self.weight_transfer_engine.stage(announced)

    def staged_version(self) -> dict[str, Any]:
        """See `Staged`."""
        return dataclasses.asdict(self.weight_transfer_engine.staged())


class RequireKey:
    """Asks every route but /health for the key, the unauthenticated dev routes too."""

    def __init__(self, app):
        self._app = app
        self._expected = f"Bearer {os.environ['VLLM_API_KEY']}".encode()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] != "/health":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                await send(
                    {"type": "http.response.start", "status": 401, "headers": []}
                )
                await send({"type": "http.response.body", "body": b"wrong API key"})
                return
        await self._app(scope, receive, send)
