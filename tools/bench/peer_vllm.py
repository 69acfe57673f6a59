"""vLLM's offline engine on the work of `tools.bench`; run with its interpreter."""

import functools
import os
import pathlib
import tempfile

import torch
import transformers
import vllm
from work import Shape, contend, stop_ids


def prepare(shape: Shape, arrays) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        _save_model(shape, pathlib.Path(folder))
        engine = vllm.LLM(
            folder,
            dtype="float32",
            skip_tokenizer_init=True,
            max_model_len=shape.prompt + shape.completion,
            max_num_seqs=shape.rows,
            gpu_memory_utilization=0.5,  # of memory in which we are already
            seed=0,
        )
    prompts = [{"prompt_token_ids": p.tolist()} for p in arrays["prompts"]]

    def draw(**options):
        # What it kept of prompts is gone with each publish of weights.
        engine.reset_prefix_cache()
        params = vllm.SamplingParams(
            max_tokens=shape.completion, logprobs=0, detokenize=False, **options
        )
        outputs = engine.generate(prompts, params, use_tqdm=False)
        return sum(len(c.token_ids) for o in outputs for c in o.outputs)

    whole = functools.partial(draw, ignore_eos=True)
    return {
        "sample": functools.partial(whole, temperature=1.0),
        "sample_top_p": functools.partial(whole, temperature=1.0, top_p=0.95),
        "greedy": functools.partial(whole, temperature=0.0),
        "mixed": functools.partial(
            draw, temperature=1.0, stop_token_ids=stop_ids(shape)
        ),
    }


def _save_model(shape: Shape, folder: pathlib.Path) -> None:
    torch.manual_seed(0)
    hf = {k: v for k, v in shape.hf_config().items() if k != "model_type"}
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**hf))
    model.save_pretrained(folder)


if __name__ == "__main__":
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    contend(f"vllm {vllm.__version__}", prepare)
