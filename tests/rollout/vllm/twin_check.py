"""Holds a model that versions were switched into to one that vLLM loads by itself.

    python twin_check.py MODEL_FOLDER DTYPE VERSIONS

Runs in vLLM's environment, without a server. Prints how many
tensors were compared, weights and what layers make of an input.
"""

import shutil
import sys
import tempfile

import torch
from safetensors.torch import save_file
from vllm.config import set_current_vllm_config
from vllm.distributed import (
    init_distributed_environment,
    initialize_model_parallel,
    model_parallel_is_initialized,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.model_loader import get_model
from vllm.v1.worker import cpu_worker  # noqa: F401  torch without an accelerator

from rollout.vllm.extension import served_shapes
from rollout.vllm.twin import Twin


def results(model):
    """Of every layer on one input, and every parameter that it keeps."""
    found = {}
    for name, layer in model.named_modules():
        for key, parameter in layer._parameters.items():
            if parameter is not None:
                found[f"{name}.{key}"] = parameter.data.clone()
        if isinstance(getattr(layer, "quant_method", None), QuantizeMethodBase):
            width = getattr(layer, "input_size", None) or layer.embedding_dim
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(3, width, generator=generator).to(layer.params_dtype)
            bias = getattr(layer, "bias", None)
            found[name] = layer.quant_method.apply(layer, x, bias)
    return found


def loaded(folder, dtype, load_format):
    """The model as vLLM makes it, and the settings that it was made by."""
    config = EngineArgs(
        model=str(folder),
        dtype=dtype,
        load_format=load_format,
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=64,
    ).create_engine_config()
    with set_current_vllm_config(config):
        if not model_parallel_is_initialized():
            with tempfile.TemporaryDirectory() as meeting:
                at = f"file://{meeting}/group"
                init_distributed_environment(1, 0, at, 0, "gloo")
                initialize_model_parallel(1, 1)
        return get_model(vllm_config=config), config


@torch.inference_mode()
def main(folder, dtype, versions):
    served, config = loaded(folder, dtype, "dummy")
    twin = Twin(served, torch.device("cpu"))
    shapes = served_shapes(config.model_config.hf_config)
    generator = torch.Generator().manual_seed(1)
    for _ in range(versions):
        weights = {
            name: torch.randn(shape, generator=generator).to(config.model_config.dtype)
            for name, shape in shapes.items()
        }
        before = results(served)
        twin.load(weights.items())
        untouched = results(served)
        assert all(torch.equal(before[name], untouched[name]) for name in before)
        twin.switch()
    with tempfile.TemporaryDirectory() as whole:
        shutil.copy(f"{folder}/config.json", whole)
        save_file(weights, f"{whole}/model.safetensors", {"format": "pt"})
        fresh, _ = loaded(whole, dtype, "auto")
    ours, theirs = results(served), results(fresh)
    assert ours.keys() == theirs.keys()
    for name, found in ours.items():
        assert torch.equal(found, theirs[name]), name
        assert not found.numel() or not torch.equal(found, before[name]), name
    print("compared", len(ours))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
