"""Trains the quickstart's base model with TRL's `GRPOTrainer`, for `learning`.

`python -m tools.bench.trl_training FILE SEED STEPS UPDATES_PER_STEP` writes the
learning curve to FILE. `pip install trl==1.16.0` installs TRL.
"""

import pathlib
import sys
import time
from typing import Any

import torch  # before transformers looks for it; see rl/problems/tokenizer.py

from configs import quickstart
from configs.base import RunConfig, from_config
from rl.base_model import base_folder
from rl.files import replace_json
from rl.problems.arithmetic import problems
from rl.processes.devices import start_devices
from rl.verifier.trl import reward


def train(
    folder: pathlib.Path, seed: int, steps: int, updates: int
) -> list[dict[str, float]]:
    """Trains with the settings of configs/quickstart.py, except dynamic sampling.

    Returns the learning curve. Its seconds exclude evaluation.
    """
    import transformers
    import trl
    from datasets import Dataset

    c: RunConfig = from_config(quickstart.get_config())
    start_devices(c)  # the number of devices changes rounding in the base model
    base = str(base_folder(c))

    def rows(arguments: Any) -> list[dict[str, str]]:
        fill = c.data.template.format
        return [
            {"prompt": fill(problem=p.problem), "answer": p.answers[0]}
            for p in problems(**arguments)
        ]

    tokenizer = transformers.AutoTokenizer.from_pretrained(base, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32
    )
    config = trl.GRPOConfig(
        output_dir=str(folder),
        seed=seed,
        max_steps=updates * steps,
        steps_per_generation=updates,
        logging_steps=updates,
        per_device_train_batch_size=(
            c.batch.prompts_per_step * c.rollout.group_size // updates
        ),
        num_generations=c.rollout.group_size,
        max_completion_length=c.rollout.max_response_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,  # no KL term
        epsilon=c.objective.eps_low,
        epsilon_high=c.objective.eps_high,
        loss_type="dapo",
        scale_rewards="group",
        learning_rate=c.schedule.learning_rate,
        warmup_steps=c.schedule.warmup_updates,
        lr_scheduler_type="constant_with_warmup",
        adam_beta1=c.optimizer.b1,
        adam_beta2=c.optimizer.b2,
        max_grad_norm=c.optimizer.max_grad_norm,
        weight_decay=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )

    @torch.no_grad()
    def accuracy(problems: list[dict[str, str]]) -> float:
        model.eval()
        right, samples = 0, c.eval.samples
        for start in range(0, len(problems), 64):
            prompts = [row["prompt"] for row in problems[start : start + 64]]
            inputs = tokenizer(prompts, return_tensors="pt", padding=True)
            drawn = model.generate(
                **inputs,
                max_new_tokens=config.max_completion_length,
                do_sample=True,
                top_k=0,
                num_return_sequences=samples,
                pad_token_id=tokenizer.pad_token_id,
            )
            new = drawn[:, inputs["input_ids"].shape[1] :]
            texts = tokenizer.batch_decode(new, skip_special_tokens=True)
            golds = [row["answer"] for row in problems[start : start + 64]]
            golds = [gold for gold in golds for _ in range(samples)]
            right += sum(r == 1 for r in reward(texts, golds))
        model.train()
        return right / (len(problems) * samples)

    held_out = rows(c.data.eval_args)
    curve = [{"step": 0, "seconds": 0.0, "accuracy": accuracy(held_out)}]

    class Curve(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            self.began = time.monotonic()  # moved forward by each evaluation's duration

        def on_step_end(self, args, state, control, **_):
            step, part = divmod(state.global_step, updates)
            if part == 0 and (step == steps or step % c.eval.every_steps == 0):
                now = time.monotonic()
                some = held_out if step == steps else held_out[: c.eval.problems]
                point = {"step": step, "seconds": now - self.began}
                curve.append(point | {"accuracy": accuracy(some)})
                self.began += time.monotonic() - now

    trl.GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows(c.data.train_args)),
        callbacks=[Curve()],
    ).train()
    return curve


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_json(out, train(out.parent, *map(int, sys.argv[2:])))
