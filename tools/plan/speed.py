"""How fast a step can be: by operations, memory and links, and how phases overlap.

A roofline: a program takes at least as long as its operations, its traffic with memory
or its data on the links take at the makers' figures, each behind the others wholly. A
real run takes longer.
"""

import dataclasses
import heapq
import math
from collections.abc import Mapping, Sequence

import numpy as np

from models.config import Qwen2Config
from tools.plan.hlo import Reading
from tools.plan.lengths import Lengths
from tools.plan.programs import Resident
from tools.plan.targets import Target
from tools.plan.workload import Workload


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roofline:
    """Seconds of one run of a program, by what they are spent on.

    Attributes:
      compute, memory, links: each alone.
    """

    compute: float
    memory: float
    links: float

    @property
    def bound(self) -> float:
        return max(self.compute, self.memory, self.links)

    @property
    def by(self) -> str:
        seconds = dataclasses.asdict(self)
        return max(seconds, key=seconds.get)


def roofline(
    reading: Reading, target: Target, *, kernel_flops: float = 0.0
) -> Roofline:
    """Of a program that was compiled for a target.

    Args:
      reading: of its text.
      target: whose chips run it.
      kernel_flops: operations inside its kernels, which the text does not show.
    """
    return Roofline(
        compute=(reading.flops + kernel_flops) / target.chip.flops,
        memory=reading.hbm_bytes / target.chip.hbm,
        links=sum(c.sent / target.link_rate(c.reach) for c in reading.collectives),
    )


# -- operations by the architecture --------------------------------------------------


def forward_flops(work: Workload, tokens: float, scored: float) -> float:
    """Matrix products of one forward pass: layers for all tokens, head for some."""
    c = work.model
    head = c.vocab_size * c.hidden_size
    return 2.0 * (c.num_layers * _layer_size(c) * tokens + head * scored)


def _layer_size(c: Qwen2Config) -> int:
    """Entries of a layer's matrices."""
    attention = 2 * c.hidden_size * c.head_dim * (c.num_heads + c.num_kv_heads)
    return attention + 3 * c.hidden_size * c.intermediate_size


def attention_flops(work: Workload, squares: float) -> float:
    """Of a forward pass's scores and mixtures, the causal half alone.

    Args:
      squares: the squared lengths of all texts, added up.
    """
    c = work.model
    return 2.0 * c.num_layers * c.num_heads * c.head_dim * squares


def update_flops(work: Workload, tokens: float, scored: float) -> float:
    """Matrix products of one micro-batch's gradient, with what remat computes again.

    Backward takes twice the forward pass. The head's logits are computed again; so are
    a layer's products under `full`, but for the last one, whose result nobody reads.
    """
    c = work.model
    head = forward_flops(work, 0, scored)
    layers = forward_flops(work, tokens, 0)
    last = 2.0 * c.num_layers * c.hidden_size * c.intermediate_size * tokens
    again = layers - last if work.config.model.remat == "full" else 0.0
    return 3 * layers + again + 4 * head


# -- sampling ------------------------------------------------------------------------


def decode_steps(completions: Sequence[int], slots: int) -> list[tuple[int, int]]:
    """Steps of decoding and how many slots are live in them, where slots are refilled.

    Args:
      completions: tokens of each, in the order in which they begin.
      slots: decoded together.

    Returns:
      `(steps, live)`, one after the other.
    """
    ends, waiting = sorted(map(int, completions[:slots])), iter(completions[slots:])
    found, now = [], 0
    while ends:
        if ends[0] > now:
            found.append((ends[0] - now, len(ends)))
        now = heapq.heappop(ends)
        if (following := next(waiting, None)) is not None:
            heapq.heappush(ends, now + int(following))
    return found


def completions_drawn(work: Workload, lengths: Lengths) -> np.ndarray:
    """The completions of one step, groups that are filtered out with them."""
    share = lengths.accepted if work.config.dynamic_sampling.filter else 1.0
    count = math.ceil(work.completions_per_step / share)
    return np.random.default_rng(1).choice(lengths.completions, count)


def weight_bytes(work: Workload) -> int:
    """Of the whole policy as it is served, in bfloat16."""
    c = work.model
    tables = (1 if c.tie_word_embeddings else 2) * c.vocab_size * c.hidden_size
    return 2 * (c.num_layers * _layer_size(c) + tables)


def position_bytes(work: Workload) -> int:
    """Of one position in the cache, in bfloat16."""
    c = work.model
    return 2 * 2 * c.num_layers * c.num_kv_heads * c.head_dim


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """What decodes: one sampler over all devices, or each vLLM server for itself.

    Attributes:
      fixed: seconds of a token whatever is live: weights, reductions.
      each: seconds of a token besides for each completion that is: its cache.
      slots: decoded together by one.
      samplers: that share a step's completions.
      prefill: seconds of a prompt, once for its group.
      how: the sampler's speed is known: computed, measured or given.
    """

    fixed: float
    each: float
    slots: int
    samplers: int
    prefill: float
    how: str

    def seconds(self, drawn: np.ndarray, group: int) -> float:
        """Of a step's completions, the longest of its samplers."""
        own = drawn[:: self.samplers]
        decoding = sum(
            steps * (self.fixed + self.each * live)
            for steps, live in decode_steps(own, self.slots)
        )
        return decoding + self.prefill * len(own) / group


def embedded_sampling(
    work: Workload,
    lengths: Lengths,
    resident: Resident,
    rooflines: Mapping[str, Roofline],
) -> Sampling:
    """Of the sampler on the trainer's devices, by its compiled programs.

    Args:
      work: the run.
      lengths: of its completions.
      resident: has the sampler's sizes.
      rooflines: by program; of decode with a cache as full as it is in the mean.
    """
    batch, copies = resident.batch, resident.copies
    split = work.trainer.count // copies
    cached = batch // copies * lengths.context * position_bytes(work) / split
    each = cached / work.target.chip.hbm / batch
    token = rooflines["decode"].bound / resident.tokens
    return Sampling(
        fixed=max(0.0, token - each * batch),
        each=each,
        slots=batch,
        samplers=1,
        prefill=rooflines["prefill"].bound * lengths.prompt / resident.read,
        how="computed",
    )


def served_sampling(work: Workload, lengths: Lengths, rate: float) -> Sampling:
    """Of vLLM's servers, one for each set of devices.

    Args:
      work: the run.
      lengths: of its completions.
      rate: completion tokens per second of all servers; 0: as fast as their memory.
    """
    r, chip = work.config.rollout.vllm, work.target.chip
    sets = [part.split(",") for part in r.devices.split(";")] if r.devices else []
    servers = len(sets) or max(1, work.servers)
    each_has = len(sets[0]) if sets else 1
    # What is left beside the weights holds so many completions of mean length.
    room = each_has * chip.memory * (r.gpu_memory_utilization or 0.9)
    held = (room - weight_bytes(work)) / (lengths.sequence * position_bytes(work))
    slots = min(r.max_num_seqs, max(0, int(held)))
    fixed = weight_bytes(work) / each_has / chip.hbm
    each = lengths.context * position_bytes(work) / each_has / chip.hbm
    how = "computed"
    if rate:
        # What a full server takes for a token, by what all of them were seen to make.
        slower = slots * servers / rate / (fixed + each * slots)
        fixed, each, how = fixed * slower, each * slower, "measured or given"
    return Sampling(
        fixed=fixed,
        each=each,
        slots=slots,
        samplers=servers,
        prefill=forward_flops(work, lengths.prompt, 0) / each_has / chip.flops,
        how=how,
    )


# -- one step ------------------------------------------------------------------------

# A publish to vLLM's servers, written, checked and read (docs/benchmarks.md).
_FILES_PER_SECOND = 194e6 / 0.34


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """Seconds of one step's phases.

    Attributes:
      sample, score, update, publish: of each by itself.
      mfu: share of the trainer's peak that the update's own operations reach.
      by: what bounds the update.
      sampling: how the sampler's speed is known: computed, measured or given.
    """

    sample: float
    score: float
    update: float
    publish: float
    mfu: float
    by: str
    sampling: str

    @property
    def train(self) -> float:
        return self.score + self.update

    def seconds(self, schedule: str) -> float:
        """Of a step under one of the schedules.

        `sync` does all in turn, `one_step_off` samples beside the update, and `async`
        beside the publish too.
        """
        if schedule == "sync":
            return self.sample + self.train + self.publish
        if schedule == "one_step_off":
            return max(self.sample, self.train) + self.publish
        return max(self.sample, self.train + self.publish)


def make_step(
    work: Workload,
    lengths: Lengths,
    sampling: Sampling,
    rooflines: Mapping[str, Roofline],
) -> Step:
    """Adds up a step.

    Args:
      work: the run.
      lengths: of its completions.
      sampling: of `embedded_sampling` or `served_sampling`.
      rooflines: of one run of each program.
    """
    b, group = work.config.batch, work.config.rollout.group_size
    texts = b.prompts_per_update * group
    # Rows are packed full but for the last ones.
    rows = math.ceil(texts * lengths.sequence / work.row_length)
    micro = math.ceil(rows / work.rows)
    updates = work.updates_per_step
    accumulate, apply = rooflines["accumulate"], rooflines["apply"]
    whole = Roofline(
        compute=micro * accumulate.compute + apply.compute,
        memory=micro * accumulate.memory + apply.memory,
        links=micro * accumulate.links + apply.links,
    )
    useful = 3 * forward_flops(work, texts * lengths.sequence, texts * lengths.mean)
    useful += 3.5 * attention_flops(work, texts * lengths.squares())
    peak = work.trainer.count * work.trainer.chip.flops
    scored = micro * (b.prompts_per_step // b.prompts_per_update)
    return Step(
        sample=sampling.seconds(completions_drawn(work, lengths), group),
        score=rooflines["score"].bound * scored if updates > 1 else 0.0,
        update=whole.bound * updates,
        publish=rooflines["publish"].bound
        if work.embedded
        else weight_bytes(work) / _FILES_PER_SECOND,
        mfu=useful / peak / whole.bound,
        by=whole.by,
        sampling=sampling.how,
    )
