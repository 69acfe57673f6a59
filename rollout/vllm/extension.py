"""What runs inside vLLM: the receiving end of a weight update, and the key check.

vLLM imports this module in its workers (`--worker-extension-cls`) and in its API
server (`--middleware`); the trainer never does. It needs torch and vLLM, and no JAX.

An update is a safetensors file that the trainer has published. Everything about it is
checked before the model is touched, so a refused file leaves the old weights serving.
"""

import dataclasses
import hmac
import os
import pathlib

import numpy as np
import torch
import transformers
from safetensors import SafetensorError, safe_open
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from rollout.vllm.checksum import checksum

BACKEND = "published_file"
_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


@dataclasses.dataclass
class InitInfo(WeightTransferInitInfo):
    """What the trainer will send.

    Attributes:
      shapes: each tensor's shape by Hugging Face name.
      dtype: of all tensors, in safetensors' words ("F32", "BF16", "F16").
      beacon: a file that the trainer has just written beside the weights to come.
      token: what the beacon holds.
    """

    shapes: dict[str, list[int]]
    dtype: str
    beacon: str
    token: str


@dataclasses.dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """One published version: its file, and the checksum of each tensor in it."""

    path: str
    version: str
    checksums: dict[str, int]


def served_shapes(config: transformers.PretrainedConfig) -> dict[str, list[int]]:
    """Names and shapes of the architecture that `config` describes, no bytes spent."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return {name: list(p.shape) for name, p in model.named_parameters()}


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.uint8).numpy()


class PublishedFileEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Loads published files through vLLM's layer-by-layer reload."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Agrees with the trainer on the model, the dtype and the folder.

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
        beacon = pathlib.Path(init_info.beacon)
        if not beacon.is_file() or beacon.read_text() != init_info.token:
            raise ValueError(
                f"the server does not see the trainer's weight folder {beacon.parent};"
                " give both a folder that they share"
            )
        self._shapes = served
        self._dtype = dtype

    def start_weight_update(self) -> None:
        """Nothing yet: the file is judged first, in `receive_weights`."""
        self._loading = False

    def update_weights(self, update_info: dict) -> None:
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Checks the file as a whole, then loads it.

        Raises:
          ValueError: the file is damaged, stale, incomplete or of another dtype. The
            model is as it was.
        """
        with open_published(update_info, self._shapes, self._dtype) as file:
            initialize_layerwise_reload(self.model)
            self._loading = True
            self.model.load_weights(
                (name, file.get_tensor(name)) for name in file.keys()
            )

    def finish_weight_update(self) -> None:
        if not self._loading:
            raise ValueError("no weights were accepted in this update")
        finalize_layerwise_reload(self.model, self.model_config)
        self._refresh_tied_head()
        self._loading = False

    def _refresh_tied_head(self) -> None:
        """Lets a tied `lm_head` follow the embedding that was just loaded.

        vLLM's CPU backend packs a private copy of the head when the model is loaded. A
        tied head has no tensor of its own in an update, so the copy would stay on the
        weights of the start, and nothing would say so.
        """
        if self.model_config.hf_config.tie_word_embeddings:
            head = self.model.lm_head
            head.quant_method.process_weights_after_loading(head)

    def shutdown(self) -> None:
        """Holds nothing between updates."""


def open_published(update: UpdateInfo, shapes: dict[str, list[int]], dtype: str):
    """Opens a published file once its version, tensors and bytes are as announced.

    Raises:
      ValueError: it is not so; the text says what was expected and what was found.
    """
    try:
        file = safe_open(update.path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"unreadable weights file: {error}") from None
    stamped = (file.metadata() or {}).get("version")
    if stamped != update.version:
        raise ValueError(
            f"stale weights file: holds version {stamped}, announced {update.version}"
        )
    names = set(file.keys())
    if missing := sorted(shapes.keys() - names):
        raise ValueError(f"{len(missing)} tensors missing, first {missing[0]}")
    if unknown := sorted(names - shapes.keys()):
        raise ValueError(f"{len(unknown)} unknown tensors, first {unknown[0]}")
    for name in sorted(names):
        view = file.get_slice(name)
        if view.get_dtype() != dtype:
            raise ValueError(f"{name} is {view.get_dtype()}, serving dtype is {dtype}")
        if list(view.get_shape()) != shapes[name]:
            raise ValueError(
                f"{name} has shape {list(view.get_shape())}, expected {shapes[name]}"
            )
        found = checksum(bytes_of(file.get_tensor(name)))
        if found != update.checksums.get(name):
            raise ValueError(
                f"{name} is corrupted: checksum {found:08x}, announced"
                f" {update.checksums.get(name, 0):08x}"
            )
    return file


WeightTransferEngineFactory.register_engine(BACKEND, PublishedFileEngine)


class PolicyWorker:
    """Mixed into vLLM's worker; importing this module is what registers the engine."""


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
