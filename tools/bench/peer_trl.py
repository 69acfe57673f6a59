"""TRL on the work of `tools.bench`; run by `tools.bench.peers` with TRL's interpreter.

The update is `GRPOTrainer.compute_loss` (DAPO loss, eps 0.2/0.28, no KL) on a ready
batch, backward, clipping and AdamW; sampling is `transformers.generate`, TRL's engine
without vLLM.
"""

import tempfile

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from work import Shape, contend, stop_ids


def prepare(shape: Shape, arrays) -> dict:
    trainer = _trainer(shape)
    batch = _batch(arrays)
    return {
        "update": lambda: _update(trainer, batch),
        "logprobs": lambda: _logprobs(trainer, batch),
        **_sampling(trainer.model, batch["prompt_ids"], shape),
    }


def _trainer(shape: Shape) -> trl.GRPOTrainer:
    vocabulary = {f"t{i}": i for i in range(shape.vocab)}
    words = Tokenizer(WordLevel(vocabulary, unk_token="t0"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="t0", eos_token=f"t{shape.vocab - 1}"
    )
    torch.manual_seed(0)
    hf = {k: v for k, v in shape.hf_config().items() if k != "model_type"}
    model = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            **hf, pad_token_id=0, eos_token_id=shape.vocab - 1, bos_token_id=None
        )
    )
    config = trl.GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=shape.rows,
        num_generations=max(2, shape.group_size),  # it refuses one
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        use_cpu=True,
        report_to=[],
        max_completion_length=shape.completion,
        bf16=False,
        gradient_checkpointing=False,
    )
    trainer = trl.GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        train_dataset=Dataset.from_dict({"prompt": ["t1 t2"] * shape.rows}),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=1e-6)
    return trainer


def _batch(arrays) -> dict[str, torch.Tensor]:
    lengths = torch.tensor(arrays["lengths"])
    completions = torch.tensor(arrays["completions"]).long()
    mask = (torch.arange(completions.shape[1]) < lengths[:, None]).long()
    prompts = torch.tensor(arrays["prompts"]).long()
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": mask,
        "advantages": torch.tensor(arrays["advantages"]),
        "old_per_token_logps": torch.full(completions.shape, -6.9),
        "num_items_in_batch": mask.sum().float(),
    }


def _update(trainer, batch) -> None:
    trainer.model.train()
    trainer.compute_loss(trainer.model, batch).backward()
    torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


@torch.no_grad()
def _logprobs(trainer, batch) -> None:
    trainer.model.eval()
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, batch["completion_ids"].shape[1]
    )


def _sampling(model, prompts, shape: Shape) -> dict:
    @torch.no_grad()
    def generate(**options):
        model.eval()
        return model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=shape.completion,
            **options,
        )[:, shape.prompt :]

    def whole(**options):
        return generate(min_new_tokens=shape.completion, **options).numel()

    def mixed():
        ids = generate(**drawn, eos_token_id=stop_ids(shape))
        # What follows a row's end is padding.
        return int((ids != 0).sum())

    drawn = dict(do_sample=True, temperature=1.0, top_k=0)
    return {
        "sample": lambda: whole(**drawn),
        "sample_top_p": lambda: whole(**drawn, top_p=0.95),
        "greedy": lambda: whole(do_sample=False),
        "mixed": mixed,
    }


if __name__ == "__main__":
    contend(f"trl {trl.__version__}", prepare)
