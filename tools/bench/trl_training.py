"""Trains a model with TRL's `GRPOTrainer`, for `tools.bench learning`.

`python -m tools.bench.trl_training SETTINGS CURVE` reads the JSON file SETTINGS and
writes the JSON file CURVE. `pip install trl==1.16.0` installs TRL.
"""

import json
import pathlib
import sys
import time
from typing import Any

from rl.files import replace_json
from rl.verifier.trl import reward


def train(settings: dict[str, Any], folder: pathlib.Path) -> list[dict[str, float]]:
    """Trains with TRL and returns the learning curve; its seconds exclude evaluation.

    `settings` is the content of SETTINGS, which `tools.bench.learning` writes.
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
    config = trl.GRPOConfig(
        output_dir=str(folder),
        seed=settings["seed"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,  # no KL term
        loss_type="dapo",
        scale_rewards="group",
        weight_decay=0.0,
        lr_scheduler_type="constant_with_warmup",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **settings["trl"],
    )
    updates = config.steps_per_generation

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
                max_new_tokens=config.max_completion_length,
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
    clock = {"begin": 0.0}  # moved forward by the duration of each evaluation

    class Curve(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            clock["begin"] = time.monotonic()

        def on_step_end(self, args, state, control, **_):
            step, part = divmod(state.global_step, updates)
            last = state.global_step == config.max_steps
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


if __name__ == "__main__":
    saved, out = map(pathlib.Path, sys.argv[1:])
    replace_json(out, train(json.loads(saved.read_text("utf-8")), out.parent))
