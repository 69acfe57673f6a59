"""Implements GRPO in one file, without options.

    python -m rl.minimal WORKDIR

trains the quickstart's model, like `python -m rl.train --config=configs/quickstart.py`.
Both use the same functions and give bit-identical results. This file omits the other
features of `rl.loop`: stages, other samplers and schedules, several hosts, evaluation,
checkpoints, alarms. Metrics are written to WORKDIR/minimal.jsonl, the model to
WORKDIR/hf.
"""

import contextlib
import dataclasses
import json
import math
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from configs import quickstart
from configs.base import RunConfig, from_config
from models import hf
from models.config import DecoderConfig
from rl.base_model import base_folder, model_from_config
from rl.groups.packing import pack_groups
from rl.problems.reading import load_problems
from rl.problems.templates import decode_completion
from rl.problems.tokenizer import Tokenizer, default_stop_ids, load_tokenizer
from rl.processes.devices import keep_programs, start_devices
from rl.types import Batch, Group, Problem
from rl.update.objective import objective_from_config, update_metrics
from rl.update.optimizer import make_hypers, make_optimizer
from rl.update.step import Step, TrainState, make_step
from rl.verifier import VerifierPool
from rollout.jax_sampler import JaxSampler
from rollout.layout import make_layout
from rollout.seeds import Stream, generator, run_seed
from rollout.types import SamplingParams
from sharding.mesh import make_mesh


def train(c: RunConfig) -> tuple[Any, DecoderConfig, list[dict[str, Any]]]:
    """Trains a policy with GRPO; ignores config keys that select other methods.

    Returns:
      The parameters, their architecture, and a row of metrics for each step.
    """
    folder = base_folder(c)
    architecture = DecoderConfig.from_folder(folder)

    # `state` holds the parameters, sharded over a mesh of all devices, and the
    # optimizer state. `step` holds the jitted functions.
    mesh = make_mesh(data=c.mesh.data, fsdp=c.mesh.fsdp, tensor=c.mesh.tensor)
    model = model_from_config(c, architecture, mesh)
    step = make_step(
        model,
        make_optimizer(c.optimizer),
        objective_from_config(c),
        head_chunk=c.model.head_chunk,
    )
    state = step.init(hf.load_params(folder, model, mesh))

    # The sampler decodes with a copy of the parameters, sharded for inference.
    layout = make_layout(
        model,
        slots=c.rollout.slots,
        prompt_length=c.rollout.max_prompt_tokens,
        response_length=c.rollout.max_response_tokens,
    )
    sampler = JaxSampler(layout, state.params)

    rows = []
    r = c.reward
    with contextlib.closing(
        VerifierPool(r.workers, r.timeout, literal=r.literal, after=r.after)
    ) as pool:
        tokenizer = load_tokenizer(folder)
        size = architecture.vocab_size
        stop_ids = default_stop_ids(folder, tokenizer, vocab_size=size)
        collector = Collector(c, tokenizer, stop_ids, sampler, pool)
        for number in range(c.steps):
            groups, metrics = collector.collect(number)
            # Advantages are (r - mean) / std within each group. Loss weights of tokens
            # are computed on the host over the whole mini-batch, so the average does
            # not depend on the split into micro-batches.
            mini_batches = pack_groups(
                groups, c, version=number, row_multiple=jax.device_count()
            )
            state, of_updates = update(c, step, state, mini_batches)
            sampler.publish(state.params, number + 1)
            rows.append({"step": number + 1, **metrics, **of_updates})
            print(
                f"step {number + 1}/{c.steps}"
                f" | accuracy {metrics.get('reward/accuracy', math.nan):.3f}"
                f" | entropy {of_updates['policy/entropy']:.3f}"
                f" | grad {of_updates['policy/grad_norm']:.2f}",
                flush=True,
            )
    return state.params, architecture, rows


@dataclasses.dataclass
class Collector:
    """Samples until a step has enough informative groups (dynamic sampling)."""

    c: RunConfig
    tokenizer: Tokenizer
    stop_ids: tuple[int, ...]
    sampler: JaxSampler
    pool: VerifierPool

    def __post_init__(self) -> None:
        c = self.c
        self.params = SamplingParams(
            n=c.rollout.group_size,
            max_tokens=c.rollout.max_response_tokens,
            temperature=c.rollout.temperature,
            stop_token_ids=self.stop_ids,
        )
        self.problems = load_problems(
            c.data.train, key="config.data.train", arguments=c.data.train_args
        )
        self.upcoming: list[Problem] = []
        self.passes = 0
        self.left: list[Group] = []
        self.rounds = 0
        self.informative_share = 1.0

    def collect(self, step: int) -> tuple[list[Group], dict[str, float]]:
        """Returns a step's informative groups, and metrics of all sampled groups."""
        c = self.c
        full = c.batch.prompts_per_step
        # Use surplus groups of the last step, sampled by an older policy version.
        oldest = step - c.dynamic_sampling.max_age
        kept = [group for group in self.left if group.created_step >= oldest]
        sampled: list[Group] = []
        for _ in range(c.dynamic_sampling.max_rounds):
            if len(kept) >= full:
                break
            # Sample more prompts if few groups of recent rounds were informative.
            missing = full - len(kept)
            count = min(math.ceil(missing / max(self.informative_share, 0.1)), 2 * full)
            drawn = self.sample(self.draw(count), step)
            # Drop groups that are all right or all wrong: their advantages are 0.
            accepted = [g for g in drawn if g.correct.any() and not g.correct.all()]
            share = len(accepted) / count
            self.informative_share = 0.5 * self.informative_share + 0.5 * share
            sampled += drawn
            kept += accepted
        if len(kept) < full:
            raise RuntimeError(
                f"step {step + 1}: only {len(kept)} of {full} informative groups; raise"
                " dynamic_sampling.max_rounds in configs/quickstart.py"
            )
        self.left = kept[full:]
        metrics = {"sampling/groups": float(len(sampled))}
        if sampled:  # otherwise surplus groups suffice
            rewards = np.concatenate([group.rewards for group in sampled])
            correct = np.concatenate([group.correct for group in sampled])
            metrics["reward/mean"] = float(rewards.mean())
            metrics["reward/accuracy"] = float(correct.mean())
        return kept[:full], metrics

    def draw(self, count: int) -> list[Problem]:
        """Returns the next problems; they are shuffled for each pass over the data."""
        while len(self.upcoming) < count:
            order = generator(self.c.seed, self.passes).permutation(len(self.problems))
            self.upcoming += [self.problems[i] for i in order]
            self.passes += 1
        drawn, self.upcoming = self.upcoming[:count], self.upcoming[count:]
        return drawn

    def sample(self, problems: list[Problem], step: int) -> list[Group]:
        """Samples G completions of each problem and verifies them."""
        seed = run_seed(self.c.seed, Stream.SAMPLING, self.rounds)
        self.rounds += 1
        texts = [self.c.data.template.replace("{problem}", p.problem) for p in problems]
        prompts = [self.tokenizer(text)["input_ids"] for text in texts]
        completions = self.sampler.sample(prompts, self.params, seed=seed)

        # Training uses the sampled token ids; only the verifier reads text.
        def text(token_ids: np.ndarray) -> str:
            return decode_completion(self.tokenizer, token_ids.tolist(), self.stop_ids)

        items = [
            (text(c.token_ids), p.answers, p.problem)
            for p, of_problem in zip(problems, completions, strict=True)
            for c in of_problem
        ]
        verdicts = iter(self.pool.judge(items))
        groups = []
        for problem, prompt, drawn in zip(problems, prompts, completions, strict=True):
            # Leave out completions that the verifier could not judge.
            judged = [(c, v.correct) for c, v in zip(drawn, verdicts, strict=False)]
            judged = [(c, right) for c, right in judged if right is not None]
            correct = np.array([right for _, right in judged], bool)
            rewards = np.where(correct, 1.0, -1.0).astype(np.float32)
            groups.append(
                Group(
                    problem=problem,
                    prompt_ids=np.asarray(prompt, np.int32),
                    completions=tuple(c for c, _ in judged),
                    correct=correct,
                    raw=rewards,
                    rewards=rewards,
                    created_step=step,
                )
            )
        return groups


def update(
    c: RunConfig, step: Step, state: TrainState, mini_batches: list[list[Batch]]
) -> tuple[TrainState, dict[str, float]]:
    """Updates the policy once per mini-batch and epoch; also returns metrics."""
    hypers = make_hypers(c, updates=int(state.updates), mini_batches=len(mini_batches))

    def scored(batch: Batch) -> Batch:
        batch = jax.device_put(batch, step.rows)
        old = step.score(state.params, batch, hypers[0])
        return batch.replace(old_logprobs=old)

    # Old log-probabilities, by the policy before these updates: the denominator of the
    # probability ratio.
    placed = [[scored(batch) for batch in micro] for micro in mini_batches]
    stats = []
    for micro, hyper in zip(placed * c.batch.ppo_epochs, hypers, strict=True):
        # Sum the gradients of the micro-batches and apply the optimizer once.
        state, of_update = step.update(state, micro, hyper)
        stats.append(jax.device_get(of_update))
    return state, update_metrics(stats)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    workdir = pathlib.Path(sys.argv[1])
    c = from_config(quickstart.get_config())
    start_devices(c, workdir)
    keep_programs(c.compiled)
    params, model, rows = train(c)
    workdir.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) + "\n" for row in rows]
    (workdir / "minimal.jsonl").write_text("".join(lines), encoding="utf-8")
    assets, dtype = base_folder(c), c.export.dtype
    hf.save_folder(workdir / "hf", params, model, assets=assets, dtype=dtype)


if __name__ == "__main__":
    main()
