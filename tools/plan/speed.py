"""How fast a step can be: by operations, memory and links, and how phases overlap.

A roofline: a program takes at least as long as its operations, its traffic with memory
or its data on the links take at the makers' figures. `bound` lets them overlap wholly,
`serial` not at all; a real run lies between, or beyond where kernels are poor.
"""

import dataclasses
import heapq
import math
from collections.abc import Sequence

import numpy as np

from tools.plan.hlo import Collective, Reading
from tools.plan.lengths import Lengths
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
    def serial(self) -> float:
        return self.compute + self.memory + self.links

    @property
    def by(self) -> str:
        names = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return max(names, key=names.get)

    def __add__(self, other: "Roofline") -> "Roofline":
        return Roofline(
            compute=self.compute + other.compute,
            memory=self.memory + other.memory,
            links=self.links + other.links,
        )

    def times(self, count: float) -> "Roofline":
        return Roofline(
            compute=count * self.compute,
            memory=count * self.memory,
            links=count * self.links,
        )


NOTHING = Roofline(compute=0, memory=0, links=0)


def roofline(
    reading: Reading, target: Target, *, kernel_flops: float = 0.0
) -> Roofline:
    """Of a program that was compiled for a target.

    Args:
      reading: of its text.
      target: whose chips run it.
      kernel_flops: operations inside its kernels, which the text does not show.
    """
    chip = target.chip
    return Roofline(
        compute=(reading.flops + kernel_flops) / chip.flops,
        memory=reading.hbm_bytes / chip.hbm,
        links=sum(link_seconds(c, target) for c in reading.collectives),
    )


def link_seconds(collective: Collective, target: Target) -> float:
    """Of a collective in a ring; over the network where it reaches beyond a node."""
    chip = target.chip
    within = chip.links / 2
    each_node = target.shape[-1]
    if chip.network is None or collective.reach <= each_node:
        return collective.sent / within
    return collective.sent / min(within, chip.network)


# -- operations by the architecture --------------------------------------------------


def forward_flops(work: Workload, tokens: float, scored: float) -> float:
    """Matrix products of one forward pass: layers for all tokens, head for some."""
    c = work.model
    attention = 2 * c.hidden_size * c.head_dim * (c.num_heads + c.num_kv_heads)
    layer = attention + 3 * c.hidden_size * c.intermediate_size
    head = c.vocab_size * c.hidden_size
    return 2.0 * (c.num_layers * layer * tokens + head * scored)


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
    running = [int(n) for n in completions[:slots]]
    heapq.heapify(running)
    waiting = iter(completions[slots:])
    found, now = [], 0
    while running:
        end, live = running[0], len(running)
        found.append((end - now, live))
        now = end
        while running and running[0] == end:
            heapq.heappop(running)
            following = next(waiting, None)
            if following is not None:
                heapq.heappush(running, now + int(following))
    return [(steps, live) for steps, live in found if steps]


def completions_drawn(work: Workload, lengths: Lengths) -> np.ndarray:
    """The completions of one step, groups that are filtered out with them."""
    share = lengths.accepted if work.config.dynamic_sampling.filter else 1.0
    count = math.ceil(work.completions_per_step / share)
    return np.random.default_rng(1).choice(lengths.completions, count)


def weight_bytes(work: Workload) -> int:
    """Of the whole policy as it is served, in bfloat16."""
    c = work.model
    attention = 2 * c.hidden_size * c.head_dim * (c.num_heads + c.num_kv_heads)
    layer = attention + 3 * c.hidden_size * c.intermediate_size
    tables = (1 if c.tie_word_embeddings else 2) * c.vocab_size * c.hidden_size
    return 2 * (c.num_layers * layer + tables)


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
    *,
    decode: Roofline,
    prefill: Roofline,
    prompts: int,
    batch: int,
    copies: int,
) -> Sampling:
    """Of the sampler on the trainer's devices, by its compiled programs.

    Args:
      work: the run.
      lengths: of its completions.
      decode: of one token for all slots, with a cache as full as it is in the mean.
      prefill: of one prefill.
      prompts: that it reads.
      batch: slots in all.
      copies: of the weights.
    """
    context = lengths.prompt + lengths.mean / 2
    split = work.trainer.count // copies
    cached = batch // copies * context * position_bytes(work) / split
    each = cached / work.target.chip.hbm / batch
    return Sampling(
        fixed=max(0.0, decode.bound - each * batch),
        each=each,
        slots=batch,
        samplers=1,
        prefill=prefill.bound / prompts,
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
    slots = min(r.max_num_seqs, server_slots(work, lengths, each_has))
    context = lengths.prompt + lengths.mean / 2
    fixed = weight_bytes(work) / each_has / chip.hbm
    each = context * position_bytes(work) / each_has / chip.hbm
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


def server_slots(work: Workload, lengths: Lengths, devices: int) -> int:
    """Completions whose cache a server has room for, at their mean length."""
    share = work.config.rollout.vllm.gpu_memory_utilization or 0.9
    room = devices * work.target.chip.memory * share - weight_bytes(work)
    return max(0, int(room / (lengths.sequence * position_bytes(work))))


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
    *,
    score: Roofline,
    accumulate: Roofline,
    apply: Roofline,
    publish: Roofline,
) -> Step:
    """Adds up a step.

    Args:
      work: the run.
      lengths: of its completions.
      sampling: of `embedded_sampling` or `served_sampling`.
      score, accumulate, apply, publish: of one run of each program.
    """
    b, group = work.config.batch, work.config.rollout.group_size
    micro = micro_batches(work, lengths)
    updates = work.updates_per_step
    whole = accumulate.times(micro) + apply
    texts = b.prompts_per_update * group
    useful = 3 * forward_flops(work, texts * lengths.sequence, texts * lengths.mean)
    useful += 3.5 * attention_flops(work, texts * lengths.squares())
    peak = work.trainer.count * work.trainer.chip.flops
    scored = micro * (b.prompts_per_step // b.prompts_per_update)
    return Step(
        sample=sampling.seconds(completions_drawn(work, lengths), group),
        score=score.bound * scored if updates > 1 else 0.0,
        update=whole.bound * updates,
        publish=publish_seconds(work, publish),
        mfu=useful / peak / whole.bound,
        by=whole.by,
        sampling=sampling.how,
    )


def micro_batches(work: Workload, lengths: Lengths) -> float:
    """Of one update: rows are packed full but for the last ones."""
    b = work.config.batch
    texts = b.prompts_per_update * work.config.rollout.group_size
    rows = math.ceil(texts * lengths.sequence / work.row_length)
    return math.ceil(rows / work.rows)


def publish_seconds(work: Workload, publish: Roofline) -> float:
    """From the update's end to the first token of the new policy."""
    if work.embedded:
        return publish.bound
    return weight_bytes(work) / _FILES_PER_SECOND
