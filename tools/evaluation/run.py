"""How an evaluation asks: under which conditions, and what is still to be asked.

Completions are asked for in chunks of problems. A chunk's seed depends on the run's
seed, the problems' name and the chunk alone, so that a restart draws what the first
start would have drawn, and keeps what is already there.
"""

import dataclasses
import hashlib
import pathlib
import zlib
from collections.abc import Callable, Iterable, Sequence

from rl.evaluate import Decode, SampledCompletion, draw
from rl.files import sha256
from rl.problems.templates import check_template
from rl.types import Problem
from rollout.seeds import derive
from rollout.types import Sampler, SamplingParams


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What one asks of a model; two results compare where these agree.

    Attributes:
      template: see `rl.problems.templates.encode_prompt`.
      samples: completions per problem.
      temperature: 0 is greedy.
      top_p: nucleus mass.
      max_tokens: most tokens of a completion.
      context: most tokens of prompt and completion together.
      seed: of all draws.
      chunk: completions asked for in one call of the sampler.
    """

    template: str
    samples: int
    temperature: float
    top_p: float
    max_tokens: int
    context: int
    seed: int = 0
    chunk: int = 1024

    def __post_init__(self):
        check_template(self.template)
        for key in ("samples", "max_tokens", "context", "chunk"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}={getattr(self, key)}: must be at least 1")
        if self.temperature == 0 and self.samples > 1:
            raise ValueError(
                f"samples={self.samples} at temperature 0 are {self.samples} times the "
                "same completion"
            )


# understand-r1-zero's harness (arXiv 2503.20783), whose base row the paper prints.
PAPER = Conditions(
    template="none",
    samples=1,
    temperature=0.0,
    top_p=1.0,
    max_tokens=3000,
    context=4096,
)
QWEN_MATH = dataclasses.replace(PAPER, template="qwen_math")
# Sampling as DeepSeek-R1 is evaluated (arXiv 2501.12948).
AVG32 = dataclasses.replace(QWEN_MATH, samples=32, temperature=0.6, top_p=0.95)
PRESETS = {"paper": PAPER, "qwen_math": QWEN_MATH, "avg32": AVG32}


def check_prompts(
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    conditions: Conditions,
    max_positions: int,
) -> int:
    """How many prompts leave less than `max_tokens`; refuses what cannot be asked.

    Raises:
      ValueError: a context beyond the model's positions, or a prompt that fills it.
    """
    if conditions.context > max_positions:
        raise ValueError(
            f"context={conditions.context} exceeds the model's {max_positions} "
            "positions"
        )
    for problem, prompt in zip(problems, prompts, strict=True):
        if len(prompt) >= conditions.context:
            raise ValueError(
                f"problem {problem.id}: its prompt of {len(prompt)} tokens fills the "
                f"context of {conditions.context}"
            )
    room = conditions.context - conditions.max_tokens
    return sum(len(prompt) > room for prompt in prompts)


def draw_missing(
    name: str,
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    *,
    present: Iterable[tuple[str, int]],
    conditions: Conditions,
    stop_token_ids: tuple[int, ...],
    sampler: Sampler,
    decode: Decode,
    on_drawn: Callable[[SampledCompletion], None],
) -> None:
    """Draws the completions that are not there yet, and tells of each as it ends.

    A prompt that leaves fewer than `max_tokens` in the context gets what is left.

    Args:
      name: of the problems, which the seeds depend on.
      problems: what is asked; their ids are unique.
      prompts: token ids for each problem, template applied.
      present: problem's id and sample of each completion that is there already.
      conditions: how they are drawn.
      stop_token_ids: any of them ends a completion.
      sampler: where completions come from.
      decode: token ids to text, special tokens left out.
      on_drawn: told of each completion that was not there, once.
    """
    there = set(present)

    def keep(drawn: SampledCompletion) -> None:
        if (drawn.id, drawn.sample) not in there:
            there.add((drawn.id, drawn.sample))
            on_drawn(drawn)

    for number, (budget, chunk) in enumerate(_chunks(prompts, conditions)):
        lacking = [
            i
            for i in chunk
            for sample in range(conditions.samples)
            if (problems[i].id, sample) not in there
        ]
        if not lacking:
            continue
        # Greedy draws need no seed, so only what is missing is asked for again.
        asked = lacking if conditions.temperature == 0 else chunk
        draw(
            [problems[i] for i in asked],
            [prompts[i] for i in asked],
            sampler=sampler,
            params=SamplingParams(
                n=conditions.samples,
                max_tokens=budget,
                temperature=conditions.temperature,
                top_p=conditions.top_p,
                stop_token_ids=stop_token_ids,
            ),
            seed=derive(conditions.seed, zlib.crc32(name.encode()), number),
            decode=decode,
            on_drawn=keep,
        )


def checkpoint_hash(folder: pathlib.Path) -> str:
    """SHA-256 over the config and all weight files of a Hugging Face folder.

    Raises:
      FileNotFoundError: it has no weights.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise FileNotFoundError(f"{folder}: no .safetensors file in it")
    digest = hashlib.sha256()
    for path in [folder / "config.json", *weights]:
        digest.update(bytes.fromhex(sha256(path)))
    return digest.hexdigest()


def _chunks(
    prompts: Sequence[Sequence[int]], conditions: Conditions
) -> list[tuple[int, list[int]]]:
    """(token budget, problem indices): one budget and at most `chunk` completions."""
    by_budget: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        budget = min(conditions.max_tokens, conditions.context - len(prompt))
        by_budget.setdefault(budget, []).append(i)
    size = max(1, conditions.chunk // conditions.samples)
    return [
        (budget, indices[start : start + size])
        for budget, indices in sorted(by_budget.items(), reverse=True)
        for start in range(0, len(indices), size)
    ]
