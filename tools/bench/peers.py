"""Measures TRL, transformers and Math-Verify on this project's work, if installed.

TRL's update runs `GRPOTrainer.compute_loss` (DAPO loss, eps 0.2/0.28, no KL), the
backward pass, clipping and AdamW on a given batch. transformers samples by `generate`,
as TRL does without vLLM. Math-Verify judges with its own parser.
`requirements.txt` installs transformers, `requirements-test.txt` installs Math-Verify,
and `pip install trl==1.16.0` installs TRL.
"""

import importlib.metadata
import importlib.util
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from rl.processes.stopping import one_line
from tools.bench.trl_training import grpo_config
from tools.bench.work import THIS, Run, Shape, stop_ids


def compare(
    result: dict[str, Any],
    peer: str,
    measure: Callable[[], Mapping[str, Any]],
    *,
    rate: str = "tokens_per_s",
) -> dict[str, Any]:
    """Adds a peer's figures to a result, and this project's rates over the peer's.

    Args:
      result: the result of a bench, with this project's figures under `THIS`.
      peer: name of the peer's Python package. If it is not installed, nothing is added.
      measure: returns the peer's figures. If it fails, the error is added instead.
      rate: name of the figure whose ratios are computed.

    Returns:
      `result`, which is changed in place.
    """
    if importlib.util.find_spec(peer) is None:
        print(f"{peer} is not installed and is left out", file=sys.stderr)
        return result
    result[peer] = {"version": importlib.metadata.version(peer.replace("_", "-"))}
    try:
        result[peer] |= measure()
    except Exception as error:  # this project's figures must still be printed
        result[peer]["failed"] = f"{type(error).__name__}: {one_line(error)[:400]}"
        print(f"{peer} failed: {result[peer]['failed']}", file=sys.stderr)
    result["ratios"] = {
        f"{name} / {peer}": row[rate] / result[peer][name][rate]
        for name, row in result[THIS].items()
        if name in result[peer]
    }
    return result


def math_verify() -> Callable[[str, str], bool]:
    """Returns a function that judges (prediction, gold) with Math-Verify."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)

    def judge(predicted: str, gold: str) -> bool:
        # Without delimiters Math-Verify would look for numbers only.
        return verify(parse(f"${gold}$"), parse(f"${predicted}$"))

    return judge


def transformers_model(shape: Shape) -> Any:
    """Returns a transformers model of the given shape with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen2Config(**shape.hf_config(), pad_token_id=0)
    return transformers.Qwen2ForCausalLM(config)


def transformers_sampling(shape: Shape, prompts: Any) -> dict[str, Run]:
    """Returns functions that sample with `generate`, by name.

    Args:
      shape: the sizes of the model and the batch.
      prompts: token ids `[groups, P]`.
    """
    import torch

    model = transformers_model(shape)
    ids = torch.tensor(prompts).long()

    @torch.no_grad()
    def generate(**options: Any) -> int:
        new = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=shape.completion,
            **options,
        )[:, shape.prompt :]
        # Padding after the end of a completion has the id 0.
        return int((new != 0).sum())

    full = {"min_new_tokens": shape.completion}
    drawn = {"do_sample": True, "temperature": 1.0, "top_k": 0}
    group = {"num_return_sequences": shape.group_size, "eos_token_id": stop_ids(shape)}
    return {
        "sample": lambda: generate(**full, **drawn),
        "sample_top_p": lambda: generate(**full, **drawn, top_p=0.95),
        "greedy": lambda: generate(**full, do_sample=False),
        "mixed": lambda: generate(**drawn, **group),
    }


def trl_update(shape: Shape, arrays: Mapping[str, Any]) -> dict[str, Run]:
    """Returns functions that run TRL's update and log-probabilities on a batch.

    Args:
      shape: the sizes of the model and the batch.
      arrays: the batch, as `make_tokens` returns it.
    """
    import torch

    trainer = _trl_trainer(shape)
    model = trainer.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    lengths = torch.tensor(arrays["lengths"])
    completions = torch.tensor(arrays["completions"]).long()
    mask = (torch.arange(shape.completion) < lengths[:, None]).long()
    prompts = torch.tensor(arrays["prompts"]).long()
    batch = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": mask,
        "advantages": torch.tensor(arrays["advantages"]),
        "old_per_token_logps": torch.full(completions.shape, -6.9),
        "num_items_in_batch": mask.sum().float(),
    }

    def update() -> None:
        model.train()
        trainer.compute_loss(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    @torch.no_grad()
    def logprobs() -> None:
        model.eval()
        ids = torch.cat([prompts, completions], 1)
        attended = torch.cat([batch["prompt_mask"], mask], 1)
        trainer._get_per_token_logps_and_entropies(
            model, ids, attended, shape.completion
        )

    return {"logprobs": logprobs, "update": update}


def _trl_trainer(shape: Shape) -> Any:
    import tokenizers
    import transformers
    import trl
    from datasets import Dataset

    vocabulary = {f"t{i}": i for i in range(shape.vocab)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="t0")
    words = tokenizers.Tokenizer(model)
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    config = grpo_config(
        tempfile.mkdtemp(),
        per_device_train_batch_size=shape.rows,
        num_generations=max(2, shape.group_size),  # TRL rejects groups of one
        max_completion_length=shape.completion,
        epsilon=0.2,
        epsilon_high=0.28,
    )
    trainer = trl.GRPOTrainer(
        model=transformers_model(shape),
        args=config,
        processing_class=transformers.PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="t0", eos_token=f"t{shape.vocab - 1}"
        ),
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        train_dataset=Dataset.from_dict({"prompt": ["t1 t2"] * shape.rows}),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer
