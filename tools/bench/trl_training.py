"""Trains a model with TRL's `GRPOTrainer`, for `tools.bench learning`."""

import json
import pathlib
import time
from typing import Any

from rl.files import replace_json
from rl.verifier.trl import reward


def train(settings: dict[str, Any]) -> list[dict[str, float]]:
    """Trains and returns the curve: `step`, `seconds` and `accuracy` of each point.

    A step has `prompts_per_step` x `group_size` completions and two updates, as in
    configs/quickstart.py. The seconds exclude evaluation.
    """
    import torch
    import transformers
    import trl
    from datasets import Dataset

    base, held_out = settings["base"], settings["held_out"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(base, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32
    )
    completions = settings["prompts_per_step"] * settings["group_size"]
    config = trl.GRPOConfig(
        output_dir=settings["out"],
        seed=settings["seed"],
        max_steps=2 * settings["steps"],  # updates
        per_device_train_batch_size=completions // 2,
        steps_per_generation=2,
        num_generations=settings["group_size"],
        max_completion_length=settings["max_response_tokens"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        epsilon=settings["eps_low"],
        epsilon_high=settings["eps_high"],
        loss_type="dapo",
        scale_rewards="group",
        learning_rate=settings["learning_rate"],
        warmup_steps=settings["warmup_updates"],
        lr_scheduler_type="constant_with_warmup",
        adam_beta1=settings["b1"],
        adam_beta2=settings["b2"],
        weight_decay=0.0,
        max_grad_norm=settings["max_grad_norm"],
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )

    @torch.no_grad()
    def accuracy(problems: list[dict[str, str]]) -> float:
        model.eval()
        right = 0
        for start in range(0, len(problems), 64):
            rows = problems[start : start + 64]
            prompts = [row["prompt"] for row in rows]
            inputs = tokenizer(prompts, return_tensors="pt", padding=True)
            drawn = model.generate(
                **inputs,
                max_new_tokens=settings["max_response_tokens"],
                do_sample=True,
                top_k=0,
                num_return_sequences=settings["samples"],
                pad_token_id=tokenizer.pad_token_id,
            )
            new = drawn[:, inputs["input_ids"].shape[1] :]
            texts = tokenizer.batch_decode(new, skip_special_tokens=True)
            golds = [row["answer"] for row in rows for _ in range(settings["samples"])]
            right += sum(r == 1 for r in reward(texts, golds))
        model.train()
        return right / (len(problems) * settings["samples"])

    curve = [{"step": 0, "seconds": 0.0, "accuracy": accuracy(held_out)}]
    clock = {"begin": 0.0}  # later by the duration of each evaluation

    class Curve(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            clock["begin"] = time.monotonic()

        def on_step_end(self, args, state, control, **_):
            step, part = divmod(state.global_step, 2)
            last = step == settings["steps"]
            if part == 0 and (last or step % settings["every"] == 0):
                now = time.monotonic()
                some = held_out if last else held_out[: settings["problems"]]
                point = {"step": step, "seconds": now - clock["begin"]}
                curve.append(point | {"accuracy": accuracy(some)})
                clock["begin"] += time.monotonic() - now

    trl.GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=Dataset.from_list(settings["train"]),
        callbacks=[Curve()],
    ).train()
    return curve


def run(asked: str, out: str) -> None:
    """Trains with the settings in the JSON file `asked`; writes the curve to `out`."""
    settings = json.loads(pathlib.Path(asked).read_text("utf-8"))
    replace_json(pathlib.Path(out), train(settings))
