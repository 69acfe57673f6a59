"""Small groups and samplers to test with."""

import numpy as np

from configs import base
from configs.base import Stage
from rl.evaluate import SampledCompletion, Scored
from rl.groups.collect import Collector
from rl.groups.curriculum import Curriculum
from rl.groups.packing import pack_segments
from rl.problems.templates import encode_prompt
from rl.types import Group, Hyper, Problem, Segment, make_hyper
from rl.verifier import Verdict
from rollout.types import Completion


def make_problem(i=0, answer="4"):
    return Problem(id=f"p{i}", problem=f"{i}+?", answers=(answer,))


def make_problems(levels):
    """One problem of each of these levels."""
    return [
        Problem(id=f"p{i}", problem=f"{i}?", answers=("4",), level=level)
        for i, level in enumerate(levels)
    ]


def encode_text(tokenizer, template, text, vocab_size=10**6):
    """The ids of the prompt of a problem with this text, in a large vocabulary."""
    problem = Problem(id="a", problem=text, answers=("1",))
    return encode_prompt(tokenizer, template, problem, vocab_size=vocab_size)


def make_completion(length, *, version=0, seed=0, logprob=None, stop=True):
    rng = np.random.default_rng([seed, length])
    logprobs = rng.normal(-1, 0.1, length) if logprob is None else [logprob] * length
    return Completion(
        token_ids=rng.integers(1, 90, length).astype(np.int32),
        sampler_logprobs=np.array(logprobs, np.float32),
        finish_reason="stop" if stop else "length",
        versions=np.full(length, version, np.int32),
    )


def example_hyper(**changes) -> Hyper:
    settings = dict(learning_rate=0.1, eps_low=0.2, eps_high=0.28, temperature=1.0)
    return make_hyper(**{**settings, "first_update": False, **changes})


def make_group(correct, *, lengths=None, rewards=None, prompt=3, seed=0, version=0):
    lengths = lengths or [4] * len(correct)
    if rewards is None:
        rewards = [1.0 if c else -1.0 for c in correct]
    rng = np.random.default_rng([seed, 99])
    return Group(
        problem=make_problem(seed),
        prompt_ids=rng.integers(1, 90, prompt).astype(np.int32),
        completions=tuple(
            make_completion(n, version=version, seed=seed + i)
            for i, n in enumerate(lengths)
        ),
        correct=np.array(correct, bool),
        raw=np.array(rewards, np.float32),
        rewards=np.array(rewards, np.float32),
        created_step=version,
    )


def make_segments(groups, *, off_policy=False):
    """Segments of the groups' completions, with advantages of 1 or -1."""
    return [
        Segment(
            group=index,
            token_ids=np.concatenate([group.prompt_ids, completion.token_ids]),
            prompt_length=len(group.prompt_ids),
            sampler_logprobs=completion.sampler_logprobs,
            off_policy=np.full(len(completion.token_ids), off_policy),
            stale=np.zeros(len(completion.token_ids), bool),
            advantage=1.0 if correct else -1.0,
        )
        for index, group in enumerate(groups)
        for completion, correct in zip(group.completions, group.correct, strict=True)
    ]


def pack(segments, row_lengths, micro_tokens, *, row_multiple=1, share_prompts=False):
    """Micro-batches, as `pack_segments` makes them."""
    how = dict(row_multiple=row_multiple, share_prompts=share_prompts)
    sizes = dict(row_lengths=row_lengths, micro_tokens=micro_tokens)
    return pack_segments(segments, **sizes, **how)


def make_scored(problem, answers, *, ends=None):
    """Judged completions of a problem, each with its answer or None."""
    of_all, scored = dict(id=problem.id, completion="", tokens=10), []
    for i, answer in enumerate(answers):
        end = ends[i] if ends else "stop"
        drawn = SampledCompletion(**of_all, sample=i, finish_reason=end)
        verdict = Verdict(answer in problem.answers, answer, "text")
        scored.append(Scored(drawn=drawn, problem=problem, verdict=verdict))
    return scored


def make_collector(
    sample,
    problems,
    *,
    reward,
    decode,
    sampling_params,
    stages=(),
    policy=None,
    shaping=None,
    seed=0,
    prompts_per_step=8,
    **settings,
):
    """A collector whose prompts are the numbers in the problems' ids."""
    how = dict(seed=seed, sampling=policy or base.Sampling(), on_message=str)
    rollout = base.Rollout(
        group_size=sampling_params.n,
        max_response_tokens=sampling_params.max_tokens,
        temperature=sampling_params.temperature,
    )
    settings = {"max_rounds": 6, "filter_on": "correct", **settings}
    return Collector(
        curriculum=Curriculum(stages or (Stage(name="all"),), problems, **how),
        sample=sample,
        reward=of_each(reward),
        decode=decode,
        prompts=[np.array([int(p.id[1:])], np.int32) for p in problems],
        stop_token_ids=sampling_params.stop_token_ids,
        config=base.RunConfig(
            seed=seed,
            rollout=rollout,
            batch=base.Batch(prompts_per_step=prompts_per_step),
            reward=shaping or base.Reward(),
            dynamic_sampling=base.DynamicSampling(**settings),
        ),
    )


def of_each(score):
    """A reward of groups by what scores texts and their problems one by one."""

    def reward(groups, problems):
        asked = [p for texts, p in zip(groups, problems, strict=True) for _ in texts]
        scores = iter(score([text for texts in groups for text in texts], asked))
        return [[next(scores) for _ in texts] for texts in groups]

    return reward


def parity(text, problem):
    """A reward that differs within a group whatever the policy is worth."""
    return 1.0 if len(text) % 2 else -1.0


def wrong(text, problem):
    """No completion is ever right."""
    return -1.0
