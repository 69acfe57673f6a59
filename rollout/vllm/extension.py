"""Loads published weights inside vLLM, and checks the API key of requests.

vLLM imports this module in its workers (`--worker-extension-cls`) and in its API
server (`--middleware`).
"""

import hmac
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from safetensors import safe_open
from vllm.lora.request import LoRARequest
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

from rollout.vllm.client import ADAPTER, checksum

_ADAPTER_ID = 1  # the id of the served adapters in vLLM


class PolicyWorker:
    """Adds methods to vLLM's worker, which are called over /collective_rpc.

    Each method returns an error message, or "". If a method raised an exception, the
    trainer would not receive its message.
    """

    # Attributes of vLLM's worker.
    model_config: Any
    model_runner: Any
    reload_weights: Callable[..., None]
    add_lora: Callable[[LoRARequest], bool]
    remove_lora: Callable[[int], bool]

    def check_policy(
        self, shapes: dict[str, list[int]], dtype: str, owner: str, token: str
    ) -> str:
        """Checks the model, the dtype, and access to the trainer's weight folder.

        Args:
          shapes: the shapes of the policy's tensors, by Hugging Face name.
          owner, token: a file in the trainer's weight folder, and its content.
        """
        with torch.device("meta"):  # builds the model without memory for its weights
            model = transformers.AutoModelForCausalLM.from_config(
                self.model_config.hf_config
            )
        served = {name: list(p.shape) for name, p in model.named_parameters()}
        serving_dtype = str(self.model_config.dtype).removeprefix("torch.")
        if serving_dtype != dtype:
            return (
                f"the server's dtype is {serving_dtype}, but the trainer publishes"
                f" {dtype}; start the server with --dtype {dtype}"
            )
        for name in sorted(served.keys() | shapes.keys()):
            if served.get(name) != shapes.get(name):
                return (
                    f"wrong model: {name} has shape {served.get(name)} on the server,"
                    f" and {shapes.get(name)} in the trainer (None: no such tensor);"
                    " start the server with the trainer's model as --model, and with"
                    " --lora_rank only if config.rollout.vllm.publish is 'adapter'"
                )
        try:
            found = pathlib.Path(owner).read_text()
        except OSError as error:
            found = str(error.strerror)
        if found != token:
            return (
                f"the server cannot read the trainer's weights ({owner}: {found}): set"
                " config.rollout.vllm.weight_dir to a directory that both can read"
            )
        return ""

    def load_policy(self, path: str, checksums: dict[str, int]) -> str:
        """Loads the weights in the file `path`, which must match `checksums`.

        After an error the weights may be a mixture of two versions.
        """
        try:
            self.reload_weights(weights_iterator=_checked_tensors(path, checksums))
        except Exception as error:
            # Partly loaded layers must not mix with those of the next version.
            model = self.model_runner.get_model()
            finalize_layerwise_reload(model, self.model_config)
            return str(error) or repr(error)
        return ""

    def load_adapter(self, path: str, checksums: dict[str, int]) -> str:
        """Loads the adapters in the file `path`, which must match `checksums`.

        vLLM's own route (`load_inplace`) would read the file again for each token.
        """
        try:
            for _ in _checked_tensors(path, checksums):
                pass
            self.remove_lora(_ADAPTER_ID)
            folder = str(pathlib.Path(path).parent)
            self.add_lora(LoRARequest(ADAPTER, _ADAPTER_ID, folder))
        except Exception as error:
            return str(error) or repr(error)
        return ""


def _checked_tensors(
    path: str, checksums: dict[str, int]
) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, "pt") as file:
        names = set(file.keys())
        for name in sorted(checksums.keys() ^ names):
            kind = "checksum" if name in names else "weights"
            raise ValueError(f"{path}: the trainer published no {kind} of {name}")
        for name, announced in checksums.items():
            tensor = file.get_tensor(name)
            found = checksum(tensor.reshape(-1).view(torch.uint8).numpy())
            if found != announced:
                raise ValueError(
                    f"{path}: {name} is corrupted or stale: checksum {found:016x}, but"
                    f" the trainer wrote {announced:016x}"
                )
            yield name, tensor


class RequireKey:
    """Requires the API key on all HTTP routes except /health.

    These routes include vLLM's development routes, which can replace weights.
    """

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
                text = b"missing or wrong API key; set VLLM_API_KEY as on the server"
                await send({"type": "http.response.body", "body": text})
                return
        await self._app(scope, receive, send)
