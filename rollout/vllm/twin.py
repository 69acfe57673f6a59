"""A second set of a served model's tensors, laid out while the first one serves.

The twin is vLLM's own module tree over again: the same modules by class and settings,
with parameters of their own in host memory, pinned where there is a GPU. A version is
loaded into it as vLLM loads any checkpoint, by the modules' own loaders, so that it is
fused, split over tensor-parallel workers and packed as the model that serves is. The
switch is then a copy onto the device, in place, where captured graphs look for it; on a
CPU the two trade their memory. Needs torch and vLLM.
"""

from collections.abc import Iterable

import torch
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs

# Where vLLM's CPU backend keeps a layer's packed weight: in a closure over it.
_PACKED = "cpu_linear"


class Twin:
    """Takes a version at leisure and hands it over at once."""

    def __init__(self, model: torch.nn.Module, device: torch.device):
        """Makes the tree; its memory is filled by `load`.

        Args:
          model: in service on `device`.

        Raises:
          ValueError: the device keeps a parameter in another shape than it is loaded
            in, so that a copy would not do.
        """
        self._on_host = device.type == "cpu"
        self._pairs: list[tuple[torch.nn.Module, torch.nn.Module]] = []
        self._root = self._copy(model, {})
        # By the served parameter, so that tied ones stay tied.
        made: dict[int, torch.Tensor] = {}
        self._unpacked = []
        for live, twin in self._pairs:
            for name, served in live._parameters.items():
                if served is not None:
                    if id(served) not in made:
                        made[id(served)] = self._room_for(live, twin, name)
                    twin._parameters[name] = made[id(served)]
            self._unpacked.append(dict(twin._parameters))

    def _copy(self, live: torch.nn.Module, known: dict) -> torch.nn.Module:
        if live not in known:
            twin = known[live] = type(live).__new__(type(live))
            twin.__dict__.update(live.__dict__)
            twin._parameters = dict(live._parameters)
            twin._buffers = dict(live._buffers)
            self._pairs.append((live, twin))
            twin._modules = {
                name: child if child is None else self._copy(child, known)
                for name, child in live._modules.items()
            }
        return known[live]

    def _room_for(self, live, twin, name: str) -> torch.Tensor:
        """A parameter as it was before packing, loader and all, with new memory."""
        before_packing, _ = get_layerwise_info(live).restore_metadata
        like = before_packing.get(name, live._parameters[name])
        tensor = torch.nn.Parameter(
            torch.empty_strided(
                like.size(),
                like.stride(),
                dtype=like.dtype,
                pin_memory=not self._on_host,
            ),
            requires_grad=False,
        )
        tensor.__class__ = like.__class__
        tensor.__dict__ = like.__dict__.copy()
        served = live._parameters[name]
        if not self._on_host and (served.shape, served.dtype) != (
            like.shape,
            like.dtype,
        ):
            raise ValueError(
                f"{type(live).__name__}.{name} is packed on the device:"
                f" {served.dtype}{list(served.shape)}, loaded as"
                f" {like.dtype}{list(like.shape)}"
            )
        return restore_layer_refs(tensor, twin)

    @torch.inference_mode()
    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Lays a whole version out. The model that serves is not touched.

        Args:
          weights: by Hugging Face name, on the host, every one that the model has.
        """
        for (_, twin), unpacked in zip(self._pairs, self._unpacked, strict=True):
            twin._parameters.update(unpacked)
        self._root.load_weights(weights)
        if self._on_host:
            for _, twin in self._pairs:
                method = getattr(twin, "quant_method", None)
                if twin._parameters and isinstance(method, QuantizeMethodBase):
                    method.process_weights_after_loading(twin)

    @torch.inference_mode()
    def switch(self) -> None:
        """The model serves what was loaded. Nobody may be drawing from it."""
        seen = set()
        for live, twin in self._pairs:
            if _PACKED in live.__dict__:
                ours, theirs = twin.__dict__[_PACKED], live.__dict__[_PACKED]
                live.__dict__[_PACKED], twin.__dict__[_PACKED] = ours, theirs
            for name, new in twin._parameters.items():
                served = live._parameters[name]
                if served is None or id(served) in seen:
                    continue
                seen.add(id(served))
                if self._on_host:
                    served.data, new.data = new.data, served.data
                else:
                    served.data.copy_(new.data, non_blocking=True)
        if not self._on_host:
            torch.accelerator.synchronize()
