"""GRPO in one file: all of training, top to bottom, and no options.

    python -m rl.minimal WORKDIR

trains the quickstart's model as `python -m rl.train --config=configs/quickstart.py`
does, with the same functions and to the same numbers, bit for bit. What `rl.loop` has
besides is left out: stages, other samplers and schedules, several hosts, evaluation,
checkpoints, alarms. Metrics go to WORKDIR/minimal.jsonl, the model to WORKDIR/hf.
"""

import contextlib
import math
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from configs import quickstart
from configs.base import RunConfig, from_config
from configs.reading import expand_home
from models import hf
from models.decoder import Params
from rl import files
from rl.base_model import base_folder, model_from_config
from rl.groups.advantages import load_advantage
from rl.groups.informative import informative
from rl.groups.packing import make_segments, pack
from rl.groups.weights import weigh
from rl.metrics import update_metrics
from rl.problems.reading import ProblemStream
from rl.processes.devices import keep_programs, start_devices
from rl.run_spec import RunSpec, validate
from rl.types import Batch, Group, Problem
from rl.update.hyper import make_hyper
from rl.update.optimizer import optimizer_from_config, schedule_from_config
from rl.update.step import Step, TrainState, make_step
from rl.verifier import VerifierPool
from rollout.jax_sampler import JaxSampler
from rollout.layout import make_layout
from rollout.seeds import Stream, run_seed
from sharding.mesh import make_mesh
from sharding.rules import place


def train(c: RunConfig) -> tuple[Params, list[dict[str, Any]], RunSpec]:
    """Trains a policy.

    Keys of the config that choose something else than the quickstart does have no say.

    Returns:
      The parameters, each step's metrics, and the run's spec.
    """
    # The config, checked, with tokenizer, problems, and their prompts as token ids.
    spec = validate(c)

    # The policy: parameters, split over a mesh of all devices, and their optimizer's
    # state. `step` holds the jitted functions.
    mesh = make_mesh(data=c.mesh.data, fsdp=c.mesh.fsdp, tensor=c.mesh.tensor)
    model = model_from_config(c, spec.model, mesh)
    step = make_step(
        model,
        optimizer_from_config(c),
        mesh,
        spec.objective,
        head_chunk=c.model.head_chunk,
    )
    state = step.init(hf.load_params(base_folder(c), model, mesh))

    # The sampler decodes with a copy of the parameters, in a layout of its own.
    layout = make_layout(
        model,
        slots=c.rollout.slots,
        prompt_length=c.rollout.max_prompt_tokens,
        response_length=c.rollout.max_response_tokens,
    )
    sampler = JaxSampler(layout, state.params)

    rows = []
    with contextlib.closing(
        VerifierPool(c.reward.workers, c.reward.timeout, literal=c.reward.literal)
    ) as pool:
        collector = Collector(spec, sampler, pool)
        for number in range(c.steps):
            groups, metrics = collector.collect(number)
            mini_batches = pack_step(spec, groups, number)
            state, of_updates = update(spec, step, state, mini_batches)
            sampler.publish(state.params, number + 1)
            rows.append({"step": number + 1, **metrics, **of_updates})
            print(
                f"step {number + 1}/{c.steps}"
                f" | accuracy {metrics['reward/accuracy']:.3f}"
                f" | entropy {of_updates['policy/entropy']:.3f}"
                f" | grad {of_updates['policy/grad_norm']:.2f}",
                flush=True,
            )
    return state.params, rows, spec


class Collector:
    """Dynamic sampling: completions until the batch is full of informative groups."""

    def __init__(self, spec: RunSpec, sampler: JaxSampler, pool: VerifierPool):
        self.spec, self.sampler, self.pool = spec, sampler, pool
        # Passes over the problems, each in an order of its own.
        self.problems = ProblemStream(spec.train, seed=spec.config.seed)
        self.left: list[Group] = []
        self.rounds = 0
        self.acceptance = 1.0

    def collect(self, step: int) -> tuple[list[Group], dict[str, float]]:
        """The groups of a step, and metrics of all that was sampled for it."""
        c = self.spec.config
        full = c.batch.prompts_per_step
        # What was over in the last step was drawn by the policy before this one.
        kept = [
            g for g in self.left if step - g.created_step <= c.dynamic_sampling.max_age
        ]
        sampled: list[Group] = []
        for _ in range(c.dynamic_sampling.max_rounds):
            if len(kept) >= full:
                break
            # As many as the share of groups that were kept lately asks for.
            missing = full - len(kept)
            asked = min(math.ceil(missing / max(self.acceptance, 0.1)), 2 * full)
            drawn = self.sample(self.problems.draw(asked), step)
            # Where all are right, or all wrong, every advantage is 0.
            accepted = [group for group in drawn if informative(group)]
            self.acceptance = 0.5 * self.acceptance + 0.5 * len(accepted) / asked
            sampled += drawn
            kept += accepted
        if len(kept) < full:
            raise RuntimeError(f"{len(kept)} of {full} informative groups: no batch")
        self.left = kept[full:]
        rewards = np.concatenate([group.rewards for group in sampled])
        correct = np.concatenate([group.correct for group in sampled])
        return kept[:full], {
            "reward/mean": float(rewards.mean()),
            "reward/accuracy": float(correct.mean()),
            "sampling/groups": float(len(sampled)),
        }

    def sample(self, problems: list[Problem], step: int) -> list[Group]:
        """G completions of each problem, judged."""
        spec = self.spec
        seed = run_seed(spec.config.seed, Stream.SAMPLING, self.rounds)
        self.rounds += 1
        prompts = [spec.encode(problem) for problem in problems]
        completions = self.sampler.sample(
            [prompt.tolist() for prompt in prompts], spec.sampling, seed=seed
        )
        # Token ids are trained on as they were drawn; text is for the verifier alone.
        asked = [
            (spec.decode(c.token_ids.tolist()), p.answers, p.problem)
            for p, of_problem in zip(problems, completions, strict=True)
            for c in of_problem
        ]
        verdicts = iter(self.pool.judge(asked))
        groups = []
        for problem, prompt, drawn in zip(problems, prompts, completions, strict=True):
            # What the pool could not judge trains nobody.
            judged = [(c, v.correct) for c, v in zip(drawn, verdicts, strict=False)]
            judged = [(c, right) for c, right in judged if right is not None]
            correct = np.array([right for _, right in judged], bool)
            rewards = np.where(correct, 1.0, -1.0).astype(np.float32)
            groups.append(
                Group(
                    problem=problem,
                    prompt_ids=prompt,
                    completions=tuple(c for c, _ in judged),
                    correct=correct,
                    raw=rewards,
                    rewards=rewards,
                    created_step=step,
                )
            )
        return groups


def pack_step(spec: RunSpec, groups: list[Group], step: int) -> list[list[Batch]]:
    """A step's mini-batches, one for each update, in micro-batches of packed rows."""
    c = spec.config
    # (r - mean) / std within each group.
    advantages = load_advantage(c.objective.advantage)(groups)
    size = c.batch.prompts_per_update
    mini_batches = []
    for start in range(0, len(groups), size):
        segments = make_segments(
            groups[start : start + size],
            advantages[start : start + size],
            version=step,
            sampler_is_trainer=True,
        )
        packed = pack(
            segments,
            row_lengths=c.batch.row_lengths,
            micro_tokens=c.batch.micro_tokens,
            row_multiple=spec.row_multiple,
            share_prompts=c.batch.share_prompts,
        )
        # Each token's weight in the loss is counted here, over the whole mini-batch, so
        # that nothing that follows can change the average.
        mini_batches.append(
            weigh(
                packed,
                aggregation=c.objective.aggregation,
                constant=c.rollout.max_response_tokens,
            )
        )
    return mini_batches


def update(
    spec: RunSpec, step: Step, state: TrainState, mini_batches: list[list[Batch]]
) -> tuple[TrainState, dict[str, float]]:
    """One step's updates of the policy, and their metrics."""
    c = spec.config
    schedule = schedule_from_config(c)
    done = int(state.updates)

    hypers = [
        make_hyper(
            learning_rate=schedule(done + i),
            eps_low=c.objective.eps_low,
            eps_high=c.objective.eps_high,
            temperature=c.rollout.temperature,
            first_update=i == 0,
        )
        for i in range(len(mini_batches))
    ]

    def scored(batch: Batch) -> Batch:
        batch = place(batch, step.rows)
        old = step.score(state.params, batch, hypers[0])
        return batch.replace(old_logprobs=old)

    # What the policy gives its own tokens before any update: the ratio's denominator.
    placed = [[scored(batch) for batch in batches] for batches in mini_batches]
    stats = []
    for batches, hyper in zip(placed, hypers, strict=True):
        # Gradients of the micro-batches add up; the optimizer is applied once.
        state, of_update = step.update(state, batches, hyper)
        stats.append(jax.device_get(of_update))
    return state, update_metrics(stats)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    workdir = pathlib.Path(sys.argv[1])
    config = quickstart.get_config()
    expand_home(config)
    c = from_config(config)
    start_devices(c, workdir)
    keep_programs(c.compiled)
    params, rows, spec = train(c)
    workdir.mkdir(parents=True, exist_ok=True)
    files.replace_rows(workdir / "minimal.jsonl", rows)
    export = {"assets": base_folder(c), "dtype": config.export.dtype}
    hf.save_folder(workdir / "hf", params, spec.model, **export)


if __name__ == "__main__":
    main()
